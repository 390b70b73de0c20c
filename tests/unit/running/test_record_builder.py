"""What cannot be stored costs as little as possible, and says why."""

import math

import msgspec
from support.records import make_energy, make_record

from benchmarker.power.energy import Accounts
from benchmarker.records.record import Design
from benchmarker.running.record_builder import Process, RecordBuilder


def test_an_energy_that_cannot_be_stored_costs_the_energy_alone():
    record = make_record()
    process = Process(
        run_id=record.run_id, trial_ids=(record.trial_id,), cases=(record.case,), trial=0, designs=(Design(),)
    )
    builder = RecordBuilder(process, 0, {})
    fields = msgspec.to_builtins(record)
    names = ("device", "types", "build_s", "compile_s", "check", "preheat", "blocks", "cost", "memory", "interference")
    builder.parts = {name: fields[name] for name in names}
    energy = make_energy(math.inf)
    builder.energy_account = Accounts(energy, [], [], {})
    stored = builder.record(1.0, 0)
    assert (stored.status, stored.blocks, stored.energy) == ("ok", record.blocks, None)
    assert stored.reasons["energy"].startswith("the readings of its meters cannot be stored: ")
