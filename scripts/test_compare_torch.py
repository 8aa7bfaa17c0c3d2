# SPDX-License-Identifier: Apache-2.0
"""compare_torch.py calls kernels by structs of its own: they must be the header's, and a kernel's plan must reach its run."""
import ctypes
import importlib.util
import re
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("compare_torch", SCRIPTS / "compare_torch.py")
compare = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compare)


def fields_of(name):
    """Names of the members of a struct of the C table, in order."""
    text = "".join((SCRIPTS.parent / "harness/abi" / file).read_text() for file in ("assay_problem.h", "assay_kernel.h"))
    body = re.search(rf"^(?:typedef )?struct {name} {{\n(.*?)^}}", re.sub(r"/\*.*?\*/", "", text, flags=re.S), re.M | re.S)[1]
    names = []
    for member in body.split(";")[:-1]:
        function = re.search(r"\(\*(\w+)\)", member)
        names += [function[1]] if function else [re.search(r"(\w+)(?:\[\w+\])?$", part.strip())[1] for part in member.split(",")]
    return names


@pytest.mark.parametrize("struct, name", [(compare.Tensor, "assay_tensor"), (compare.Tensors, "assay_tensors"),
                                          (compare.Problem, "assay_problem"), (compare.Kernel, "assay_kernel"),
                                          (compare.Backend, "assay_backend")])
def test_structs_are_the_header_s(struct, name):
    ours = [field[0] for field in struct._fields_]
    assert ours == fields_of(name)[:len(ours)]


class FakeTensor:
    def __init__(self, shape, dtype):
        self.shape, self.dtype, self.device = tuple(shape), dtype, "cpu"

    def data_ptr(self):
        return 4096

    def dim(self):
        return len(self.shape)

    def stride(self, i):
        stride = 1
        for n in self.shape[i + 1:]:
            stride *= n
        return stride

    def new_empty(self, *shape):
        return FakeTensor(shape, self.dtype)


class FakeTorch:
    bfloat16, float16, float32, int32, uint8 = "bf16", "fp16", "fp32", "int32", "uint8"

    @staticmethod
    def empty(*shape, device):
        return FakeTensor(shape, "fp32")

    @staticmethod
    def arange(begin, end, step, dtype, device):
        return FakeTensor([len(range(begin, end, step))], dtype)

    @staticmethod
    def full(shape, value, dtype, device):
        return FakeTensor(shape, dtype)

    @staticmethod
    def zeros(n, dtype, device):
        return FakeTensor([n], dtype)


@pytest.mark.parametrize("planned", [True, False])
def test_a_plan_reaches_the_run(planned):
    seen = []

    def plan(kernel, problem, tensors, out, error, size):
        assert problem.contents.total_q == 8 and tensors.contents.q.shape[0] == 8
        out[0] = 4711
        return compare.OK

    def run(kernel, problem, tensors, given, stream, error, size):
        seen.append(given)
        return compare.OK

    kernel = compare.Kernel()
    kernel.run, freed = compare.RUN(run), []
    if planned:
        kernel.plan = compare.PLAN(plan)
        kernel.free_plan = compare.FREE_PLAN(lambda kernel, given: freed.append(given))
    q = FakeTensor((8, 2, 16), "bf16")
    call = compare.Call(FakeTorch, kernel, q, q, q, True, 2)
    assert call().shape == (8, 2, 16)
    del call
    assert seen == ([4711] if planned else [None]) and freed == ([4711] if planned else [])


@pytest.mark.parametrize("contracts, null", [(compare.NO_LSE, True), (0, False)])
def test_kernels_without_an_lse_get_none(contracts, null):
    seen = []

    def run(kernel, problem, tensors, given, stream, error, size):
        seen.append(tensors.contents.lse.data)
        return compare.OK

    kernel = compare.Kernel(contracts=contracts)
    kernel.run = compare.RUN(run)
    q = FakeTensor((8, 2, 16), "bf16")
    compare.Call(FakeTorch, kernel, q, q, q, True, 2)()
    assert seen == [None if null else 4096]


def test_a_held_clock_counts_its_calls_and_keeps_two_lots_ahead():
    calls, waiting, most = [], [], []

    class Event:
        def __init__(self, enable_timing=False):
            self.timing = enable_timing

        def record(self):
            self.at = len(calls)
            if not self.timing:
                waiting.append(self)
                most.append(len(waiting))

        def synchronize(self):
            assert waiting.pop(0) is self

        def elapsed_time(self, end):
            return 2.0 * (end.at - self.at)  # 2 ms a call

    class Torch:
        class cuda:
            synchronize = staticmethod(waiting.clear)

    Torch.cuda.Event = Event
    clock = compare.HeldClock(Torch, 0.01)
    assert clock.seconds(lambda: calls.append(1)) == pytest.approx(2e-3)
    assert len(calls) > 10 and max(most) == 3
