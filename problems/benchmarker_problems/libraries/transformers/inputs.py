"""Inputs of models of transformers, made from the signature of `forward` and the config."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarker import UserError
from benchmarker_problems.libraries.files import cannot_be_made

if TYPE_CHECKING:
    from benchmarker_problems.libraries.transformers import Transformers

PIXELS = 224
"""Height and width of an image if neither the config nor the user says it."""
TEXTS = {"input_ids", "decoder_input_ids"}
"""Arguments that are texts."""
CHOICES = 2
"""Answers of a question with several answers."""
CLASSIFIERS = (
    "ForSequenceClassification",
    "ForImageClassification",
    "ForAudioClassification",
    "ForVideoClassification",
)
LANGUAGE = ("LMHeadModel", "ForCausalLM", "ForMaskedLM", "ForConditionalGeneration", "LMHead", "ForSpeechSeq2Seq")


class Maker:
    """Makes the arguments of one model; shapes: B batch, T sequence, C channels, H height, W width."""

    def __init__(self, problem: Transformers, config: Any, main: str, rng: np.random.Generator) -> None:
        self.problem = problem
        self.config = config
        self.main = main
        self.rng = rng
        self.batch = problem.batch_size
        self.length = problem.length
        self.makers: Mapping[str, Callable[[], np.ndarray]] = {
            "input_ids": self.input_ids,
            "decoder_input_ids": lambda: self.ids(self.batch, self.length),
            "pixel_values": self.pixels,
            "pixel_values_videos": self.video,
            "input_values": self.audio,
            "input_features": self.features,
        }

    def arguments(self, parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the arguments that a model needs, and those that its kind of model is usually given, but for `given`.

        Labels are not made for a text that is given: only its author knows which they are.
        """
        of_any = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        wanted = [self.main] if self.main in parameters else []
        wanted += [each for each in ("input_ids", "pixel_values") if each in parameters and self.reads(each)]
        generates = self.problem.phase != "none"
        if self.config.is_encoder_decoder and "decoder_input_ids" in parameters and not generates:
            wanted.append("decoder_input_ids")
        wanted += [
            name
            for name, parameter in parameters.items()
            if name != "self" and parameter.default is parameter.empty and parameter.kind not in of_any
        ]
        made = {name: self.made(name) for name in dict.fromkeys(wanted) if name not in given}
        if generates or TEXTS & given.keys():
            return made
        return {**made, **{name: value for name, value in self.labels(made).items() if name in parameters}}

    def made(self, name: str) -> np.ndarray:
        """Return one argument."""
        if name not in self.makers:
            raise UserError(f"{self.problem.model} {cannot_be_made(name)}")
        return self.makers[name]()

    def reads(self, name: str) -> bool:
        """Whether a model of several inputs reads text, or images."""
        return hasattr(self.config, "text_config" if name == "input_ids" else "vision_config") or name == self.main

    @property
    def text(self) -> Any:
        """The config of the part that reads or writes text."""
        return (
            self.config.get_text_config(decoder=True)
            if self.config.is_encoder_decoder
            else self.config.get_text_config()
        )

    @property
    def vision(self) -> Any:
        """The config of the part that reads images."""
        return next(
            (each for name in ("vision_config", "backbone_config") if (each := getattr(self.config, name, None))),
            self.config,
        )

    def ids(self, *shape: int) -> np.ndarray:
        """Return ids of tokens that have no special meaning."""
        size = int(self.text.vocab_size)
        special = {
            value
            for of in (self.config, self.text)
            for name, value in vars(of).items()
            if "token" in name and isinstance(value, int)
        }
        usual = np.setdiff1d(np.arange(size), list(special)) if len(special) < size else np.arange(size)
        found: np.ndarray = usual[self.rng.integers(len(usual), size=shape)]
        return found

    def input_ids(self) -> np.ndarray:
        """Return a text, with the places of an image if the model reads one in it."""
        choices = [CHOICES] if self.problem.model.endswith("ForMultipleChoice") else []
        ids = self.ids(self.batch, *choices, self.length)
        image = next(
            (
                getattr(self.config, name, None)
                for name in ("image_token_id", "image_token_index")
                if hasattr(self.config, name)
            ),
            None,
        )
        if image is None:
            return ids
        count = next(
            (
                getattr(self.config, name, None)
                for name in ("mm_tokens_per_image", "image_seq_length")
                if hasattr(self.config, name)
            ),
            None,
        )
        if count is None:
            raise UserError(
                f"{self.problem.model} reads images in a text, but its config does not say at how many tokens; "
                "give input_ids by a file, --inputs=FILE.py"
            )
        return np.concatenate([np.full((self.batch, count), image), ids], 1)

    def normal(self, *shape: int) -> np.ndarray:
        """Return random numbers of the standard normal distribution."""
        return self.rng.standard_normal(shape, dtype=np.float32)

    def pixels(self) -> np.ndarray:
        """Return images [B, C, H, W], or videos [B, frames, C, H, W] for a model of these."""
        size = self.problem.image_size or getattr(self.vision, "image_size", None) or PIXELS
        height, width = size if isinstance(size, list | tuple) else (size, size)
        frames = getattr(self.vision, "num_frames", None)
        return self.normal(
            self.batch, *([frames] if frames else []), getattr(self.vision, "num_channels", 3), height, width
        )

    def video(self) -> np.ndarray:
        """Return videos [B, frames, C, H, W]."""
        return self.pixels()

    def audio(self) -> np.ndarray:
        """Return samples of sound [B, samples], which convolutions make T frames of; or a spectrogram [B, T, mels]."""
        strides = getattr(self.config, "conv_stride", None)
        if strides is None:
            return self.normal(self.batch, int(self.config.max_length), int(self.config.num_mel_bins))
        return self.normal(self.batch, (self.length + 1) * prod(strides))

    def features(self) -> np.ndarray:
        """Return a spectrogram: [B, mels, frames] for Whisper, whose length is fixed, else [B, T, features]."""
        config = self.config
        if hasattr(config, "max_source_positions") and hasattr(config, "num_mel_bins"):
            return self.normal(self.batch, config.num_mel_bins, 2 * config.max_source_positions)
        names = ("feature_projection_input_dim", "input_feat_per_channel", "num_mel_bins", "input_dim")
        width = next((getattr(config, name) for name in names if hasattr(config, name)), None)
        if width is None:
            raise UserError(
                f"{self.problem.model} needs the argument 'input_features', whose width its config does not say; "
                "give it by a file, --inputs=FILE.py"
            )
        return self.normal(self.batch, self.length, width)

    def labels(self, made: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return what a loss needs of these inputs; nothing for a model whose labels are not known."""
        model, batch = self.problem.model, self.batch
        text = made.get("decoder_input_ids", made.get("input_ids"))
        classes = getattr(self.config, "num_labels", 2)
        if model.endswith(CLASSIFIERS):
            return {"labels": self.rng.integers(classes, size=batch)}
        if model.endswith("ForSemanticSegmentation"):
            height, width = made["pixel_values"].shape[-2:]
            return {"labels": self.rng.integers(classes, size=(batch, height, width))}
        if model.endswith("ForCTC"):
            return {"labels": self.ids(batch, max(1, self.length // 4))}
        if text is None:
            return {}
        if model.endswith("ForMultipleChoice"):
            return {"labels": self.rng.integers(CHOICES, size=batch)}
        if model.endswith("ForQuestionAnswering"):
            return {name: self.rng.integers(text.shape[1], size=batch) for name in ("start_positions", "end_positions")}
        if model.endswith("ForTokenClassification"):
            return {"labels": self.rng.integers(classes, size=text.shape)}
        if model.endswith("ForNextSentencePrediction"):
            return {"labels": self.rng.integers(2, size=batch)}
        return {"labels": text} if model.endswith(LANGUAGE) else {}
