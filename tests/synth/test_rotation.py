import json
from importlib import resources

import numpy as np
import pytest

from latecomer.schedules.errors import NotApplicable
from latecomer.synth.algorithms import rotation
from latecomer.synth.algorithms.completion import log2_ceil
from latecomer.synth.catalog import make

from .completion_check import judge

ENTRIES = json.loads(resources.files("latecomer.synth.catalog").joinpath(rotation.CATALOG).read_text(encoding="utf-8"))


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, *map(int, ENTRIES)])
def test_every_entry_is_optimal_for_every_kind_of_number_of_chunks(ranks):
    few = range(1, 3 * ranks) if ranks <= 12 else {1, 2, 3, 7, 11, 16, 32, ranks - 2, ranks - 1, ranks, 2 * ranks - 2}
    for chunks in few:
        completion = rotation.completion(ranks, chunks)
        judge(completion, ranks, chunks)
        assert completion.rounds == completion.transfers.rounds == chunks + log2_ceil(ranks) - 1
        shares = np.bincount(completion.owners, minlength=ranks - 1)
        assert shares.max() - shares.min() <= 1


@pytest.mark.parametrize("ranks", [5, 10, 18, 31])
def test_the_catalog_can_be_made_again(ranks):
    assert make.entry(ranks) == ENTRIES[str(ranks)]


def test_what_the_catalog_lacks_is_served_by_circulant():
    with pytest.raises(NotApplicable, match="circulant"):
        rotation.completion(65, 3)
