# Two commands on a fresh machine: `make bench` and `make test`. Each sets up what it needs, in .venv.

PYTHON ?= python3
COMMA := ,
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python -m benchmarker
EXTRAS := jax,torch$(if $(shell command -v nvidia-smi),$(COMMA)nvidia)
INSTALL = $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable

.PHONY: bench test test-slow test-all gpu wheels calibrate check check-benchmarks docs pictures references man format clean help

help:  ## Say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 18

# A stamp is renewed only when what is installed would change: afterwards everything runs offline.
$(VENV)/ready: pyproject.toml constraints.txt
	@echo 'Setting up $(VENV): this takes some minutes, once.'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[$(EXTRAS)]'
	touch $@

# With the tools for tests and documentation.
$(VENV)/installed: $(VENV)/ready
	$(INSTALL) '.[$(EXTRAS),dev]'
	touch $@

bench: $(VENV)/ready  ## Measure GPT-2 and a matrix product in every framework on this machine
	$(RUN) run --framework=jax,torch --problem=gemm --preheat --preheat-max=10 --seconds=5
	$(RUN) run --framework=numpy --problem=gemm --preheat --preheat-max=10 --seconds=5
	$(RUN) run --framework=jax,torch --problem=gpt2 --preheat --preheat-max=20 --seconds=20

test: $(VENV)/installed check  ## Run lint, types and the fast tests
	$(BIN)/python -m pytest -n auto

test-slow: $(VENV)/installed check-benchmarks  ## Run the slow tests
	$(BIN)/python -m pytest -n auto --dist worksteal -m slow

test-all: test test-slow  ## Run lint, types and all tests

# With PYTHON=..., what that Python has is used as it is: only this project, and the wheels in build/wheels if it lacks some,
# go into build/gpu, without a network. One call stays under 10 minutes; the same command continues.
TESTS_ON_GPU := -P -m pytest tests/gpu -m gpu -v -W default -p no:cacheprovider --minutes=9 --output=gpu-proof $(ARGS)
gpu:  ## Test on an NVIDIA GPU that the tool is right on it (PYTHON=... uses what that Python has; ARGS=... are pytest's)
ifeq ($(origin PYTHON),file)
	@$(MAKE) --no-print-directory $(VENV)/installed
	$(BIN)/python $(TESTS_ON_GPU)
else
	$(PYTHON) -m pip install --quiet --no-index --no-deps --no-build-isolation --upgrade --target build/gpu \
		$(or $(wildcard build/wheels/*.whl),.)
	PYTHONPATH=$(CURDIR)/build/gpu $(PYTHON) $(TESTS_ON_GPU)
endif

FOR ?= 3.12
CARRIED ?= lazy-loader msgspec platformdirs nvidia-ml-py pytest pytest-timeout iniconfig packaging pluggy pygments
PLATFORMS := $(foreach version,2_5 2_17 2_24 2_27 2_28 2_34,--platform manylinux_$(version)_x86_64) \
	--platform manylinux2014_x86_64 --platform manylinux1_x86_64
wheels: $(VENV)/installed  ## Collect in build/wheels what a machine without a network may lack (FOR=3.12, CARRIED='...')
	rm -rf build/wheels
	$(BIN)/python -m pip download --quiet --no-deps --only-binary=:all: --python-version $(FOR) $(PLATFORMS) \
		--dest build/wheels $(CARRIED)
	$(BIN)/python -m build --wheel --no-isolation --outdir build/wheels .

MINUTES ?= 10
calibrate: $(VENV)/installed  ## Measure on this machine how often verdicts are right (MINUTES=10)
	$(BIN)/python benchmarks/verdicts/calibration live --minutes=$(MINUTES)

check: $(VENV)/installed  ## Run formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check-benchmarks: $(VENV)/installed  ## Check that the benchmarks fit the code
	for folder in $$(find benchmarks -name '*.py' -exec dirname {} + | sort -u); do \
		MYPYPATH=plugins:problems:$$folder:benchmarks/verdicts/calibration \
		$(BIN)/mypy --config-file=benchmarks/mypy.ini --cache-dir=.mypy_cache/benchmarks $$folder/*.py || exit; \
	done

docs: $(VENV)/installed  ## Build the documentation as a site into build/docs, without a network
	$(BIN)/mkdocs build --strict --quiet

references: $(VENV)/installed  ## Draw anew the figures of a page with which a test compares them (needs Chromium)
	RENEW_PICTURES=yes $(BIN)/python -m pytest -m slow tests/unit/page/test_pictures.py -k looks

pictures: $(VENV)/installed  ## Make the pictures of the documentation anew (needs Chromium)
	$(BIN)/python docs/pictures.py

man: $(VENV)/installed  ## Write the manual page to build/man/benchmarker.1
	mkdir -p build/man
	$(BIN)/python -m benchmarker.cli.manual > build/man/benchmarker.1

format: $(VENV)/installed  ## Format the source
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## Remove the environment and everything built; results stay
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
