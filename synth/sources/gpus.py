"""What is known about a GPU model's links: enough to turn "NV18" or "PIX" into a rate.

Rates are raw, GB/s (1e9) per direction, from the makers' published specifications (NVLink: 20 GB/s per link
on Pascal, 25 from Volta to Hopper, 50 on Blackwell; PCIe x16: 15.75, 31.5 and 63 GB/s for generations 3, 4,
5).
"""

from __future__ import annotations

import difflib
import re
from typing import Final, NamedTuple

from latecomer.schedules.errors import InputError

PCIE_X16_GBS: Final = {3: 15.75, 4: 31.5, 5: 63.0, 6: 121.0}
"""PCIe x16, GB/s per direction, by generation."""


class GpuModel(NamedTuple):
    """Links of one GPU: how many NVLinks, GB/s per NVLink and direction, PCIe generation."""

    name: str
    nvlinks: int
    nvlink_gbs: float
    pcie: int

    @property
    def pcie_gbs(self) -> float:
        """GB/s per direction of its PCIe x16 port."""
        return PCIE_X16_GBS[self.pcie]


_MODELS: Final = {
    model.name: model
    for model in (
        GpuModel("P100", 4, 20.0, 3),
        GpuModel("V100", 6, 25.0, 3),
        GpuModel("A100", 12, 25.0, 4),
        GpuModel("A800", 8, 25.0, 4),
        GpuModel("H100", 18, 25.0, 5),
        GpuModel("H200", 18, 25.0, 5),
        GpuModel("H20", 18, 25.0, 5),
        GpuModel("GH200", 18, 25.0, 5),
        GpuModel("B200", 18, 50.0, 5),
        GpuModel("B300", 18, 50.0, 6),
        GpuModel("GB200", 18, 50.0, 5),
        GpuModel("GB300", 18, 50.0, 6),
        GpuModel("A40", 4, 14.0625, 4),
        GpuModel("A5000", 4, 14.0625, 4),
        GpuModel("A6000", 4, 14.0625, 4),
        GpuModel("3090", 4, 14.0625, 4),
        GpuModel("T4", 0, 0.0, 3),
        GpuModel("A10", 0, 0.0, 4),
        GpuModel("L4", 0, 0.0, 4),
        GpuModel("L40", 0, 0.0, 4),
        GpuModel("L40S", 0, 0.0, 4),
        GpuModel("4090", 0, 0.0, 4),
        GpuModel("5090", 0, 0.0, 5),
    )
}


def gpu_model(text: str) -> GpuModel:
    """The model that `text` names: `H100`, `h100`, `NVIDIA H100 80GB HBM3`, `RTX A6000`.

    Raises `InputError` with the models that are known.
    """
    words = re.findall(r"[A-Z0-9]+", re.sub(r"RTX", " ", text.upper()))
    for word in words:
        if word in _MODELS:
            return _MODELS[word]
    near = difflib.get_close_matches(" ".join(words), _MODELS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    raise InputError(
        f"GPU model {text!r} is not known; {hint}Known are {', '.join(_MODELS)}. "
        "For another, say the rate of one link with --link-rate 25GB/s"
    )
