"""Which GPUs variables hide: CUDA's and HIP's rules by their documents and sources."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkgauge.system.visible import KnownGpu, visible

ALPHA, BETA = KnownGpu("GPU-8932f937-d72c-4106"), KnownGpu("GPU-89aa0000-0000-0000")
MIG = KnownGpu("GPU-8932f937-d72c-4106", ("MIG-11110000-aa", "MIG-22220000-bb"))
TWO = (ALPHA, BETA)


def cuda(value: str | None, gpus: tuple[KnownGpu, ...] = TWO) -> tuple[list[int], str]:
    found = visible("nvidia", {} if value is None else {"CUDA_VISIBLE_DEVICES": value}, gpus)
    return list(found.left), found.words


@pytest.mark.parametrize(
    ("value", "left", "words"),
    [
        (None, [0, 1], ""),
        ("1,0", [1, 0], ""),
        ("0, 1", [0, 1], ""),
        ("1", [1], "1 of 2 GPUs is hidden by CUDA_VISIBLE_DEVICES=1"),
        ("", [], "2 of 2 GPUs are hidden: CUDA_VISIBLE_DEVICES is empty"),
        (" ", [], "2 of 2 GPUs are hidden: CUDA_VISIBLE_DEVICES is empty"),
        ("0,7", [0], "1 of 2 GPUs is hidden by CUDA_VISIBLE_DEVICES=0,7: 7 is no GPU here"),
        ("7,0", [], "2 of 2 GPUs are hidden by CUDA_VISIBLE_DEVICES=7,0: 7 is no GPU here"),
        ("0,-1,1", [0], "1 of 2 GPUs is hidden by CUDA_VISIBLE_DEVICES=0,-1,1: -1 is no GPU here"),
        ("-1", [], "2 of 2 GPUs are hidden by CUDA_VISIBLE_DEVICES=-1: -1 is no GPU here"),
        ("0,,1", [0], "1 of 2 GPUs is hidden by CUDA_VISIBLE_DEVICES=0,,1: an empty entry is no GPU here"),
        ("NoDevFiles", [], "2 of 2 GPUs are hidden by CUDA_VISIBLE_DEVICES=NoDevFiles: NoDevFiles is no GPU here"),
        ("0,0", [], "2 of 2 GPUs are hidden by CUDA_VISIBLE_DEVICES=0,0: 0 is there twice, and CUDA then shows none"),
        ("0,GPU-8932", [], "2 of 2 GPUs are hidden by CUDA_VISIBLE_DEVICES=0,GPU-8932: GPU-8932 is there twice, and "
                           "CUDA then shows none"),
        ("0,9,0", [0], "1 of 2 GPUs is hidden by CUDA_VISIBLE_DEVICES=0,9,0: 9 is no GPU here"),
        ("GPU-89aa", [1], "1 of 2 GPUs is hidden by CUDA_VISIBLE_DEVICES=GPU-89aa"),
        ("gpu-89AA,0", [1, 0], ""),
        ("GPU-89", [], "2 of 2 GPUs are hidden by CUDA_VISIBLE_DEVICES=GPU-89: GPU-89 names 2 GPUs here"),
        ("GPU-77", [], "2 of 2 GPUs are hidden by CUDA_VISIBLE_DEVICES=GPU-77: GPU-77 is no GPU here"),
    ],
)  # fmt: skip
def test_cuda_reads_its_list(value: str | None, left: list[int], words: str) -> None:
    assert cuda(value) == (left, words)


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("MIG-11110000-aa", [0]),
        ("MIG-11,MIG-22", [0, 0]),  # both instances of one GPU
        ("MIG-11,MIG-11", []),
        ("MIG-", []),
        ("MIG-GPU-8932f937-d72c-4106/1/0", [0]),
        ("MIG-GPU-8932f937-d72c-4106/1/0,MIG-GPU-8932f937-d72c-4106/2/0,1", [0, 0, 1]),
        ("MIG-GPU-89aa0000-0000-0000/1/0", []),  # a whole GPU
    ],
)
def test_mig_instances_are_named_by_uuid(value: str, left: list[int]) -> None:
    assert cuda(value, (MIG, BETA))[0] == left


AMD = tuple(KnownGpu(f"GPU-{number:016x}") for number in (0xABC1, 0xABC2, 0xD))


@pytest.mark.parametrize(
    ("environment", "left", "words"),
    [
        ({}, [0, 1, 2], ""),
        ({"ROCR_VISIBLE_DEVICES": "1,2"}, [1, 2], "1 of 3 GPUs is hidden by ROCR_VISIBLE_DEVICES=1,2"),
        ({"ROCR_VISIBLE_DEVICES": ""}, [], "3 of 3 GPUs are hidden: ROCR_VISIBLE_DEVICES is empty"),
        ({"ROCR_VISIBLE_DEVICES": "0x2"}, [2], "2 of 3 GPUs are hidden by ROCR_VISIBLE_DEVICES=0x2"),
        ({"ROCR_VISIBLE_DEVICES": "1,1,2"}, [1], "2 of 3 GPUs are hidden by ROCR_VISIBLE_DEVICES=1,1,2"),
        ({"ROCR_VISIBLE_DEVICES": "GPU-000000000000ABC2"}, [1],
         "2 of 3 GPUs are hidden by ROCR_VISIBLE_DEVICES=GPU-000000000000ABC2"),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0"}, [],
         "3 of 3 GPUs are hidden by ROCR_VISIBLE_DEVICES=GPU-0: GPU-0 is no GPU here"),
        ({"ROCR_VISIBLE_DEVICES": "0,5"}, [0],
         "2 of 3 GPUs are hidden by ROCR_VISIBLE_DEVICES=0,5: 5 is no GPU here"),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, [2, 0], "1 of 3 GPUs is hidden by HIP_VISIBLE_DEVICES=2,0"),
        ({"HIP_VISIBLE_DEVICES": "0,0,1"}, [0, 1], "1 of 3 GPUs is hidden by HIP_VISIBLE_DEVICES=0,0,1"),
        ({"HIP_VISIBLE_DEVICES": "01"}, [],
         "3 of 3 GPUs are hidden by HIP_VISIBLE_DEVICES=01: 01 is no GPU here"),
        ({"HIP_VISIBLE_DEVICES": "-1"}, [], "3 of 3 GPUs are hidden by HIP_VISIBLE_DEVICES=-1: -1 is no GPU here"),
        ({"HIP_VISIBLE_DEVICES": ""}, [0, 1, 2], ""),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "1"}, [1],
         "2 of 3 GPUs are hidden by CUDA_VISIBLE_DEVICES=1"),
        ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, [2],
         "2 of 3 GPUs are hidden by ROCR_VISIBLE_DEVICES=1,2 and HIP_VISIBLE_DEVICES=1"),
    ],
)  # fmt: skip
def test_rocr_comes_before_hip(environment: dict[str, str], left: list[int], words: str) -> None:
    found = visible("amd", environment, AMD)
    assert (list(found.left), found.words) == (left, words)


@given(st.text(max_size=40), st.text(alphabet="0123456789,-GPUMIG/abcx", max_size=40))
def test_any_text_is_read(one: str, other: str) -> None:
    """Every GPU counts once, whatever the variables say, and what hides one is a line."""
    for vendor, gpus in (("nvidia", (MIG, BETA)), ("amd", AMD)):
        for value in (one, other):
            names = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
            found = visible(vendor, dict.fromkeys(names, value), gpus)
            assert set(found.left) <= set(range(len(gpus)))
            assert 0 <= found.hidden <= found.count
            assert bool(found.words) == bool(found.hidden)
            assert found.words.isprintable()
