#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prefill of a backend beside torch's scaled_dot_product_attention, in one process.

Same shapes, same values, same number of threads; the two are called in turn, so that whatever else the
machine does hits both; the median of each is reported and the outputs are compared. On a GPU
(--device cuda) times come from events on the stream, with the L2 cache overwritten before every call, or, with
--held, of calls without a pause, at the chip's limit of power. --peer adds another library's kernel. Optional:
only this script needs torch (pip install torch numpy). --help lists the options.

  scripts/compare_torch.py                                   the CPU backend
  scripts/compare_torch.py --device cuda --heads 16          the CUDA backend, kernel prefill_mma_gpu
"""
import argparse
import ctypes
import math
import os
import random
import statistics
import sys
import time
import warnings
from pathlib import Path

OK, OP_PREFILL, FP32, BF16, FP16, INT32, UINT8 = 0, 1, 1, 2, 3, 10, 9
CAUSAL, FULL = 0, 1
MAX_RANK = 5
NO_LSE = 2  # enum assay_contract
ABI_VERSION = 2


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("format", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("shape", ctypes.c_int64 * MAX_RANK), ("stride", ctypes.c_int64 * MAX_RANK),
                ("role", ctypes.c_int32)]


# Mirrors harness/abi/assay_kernel.h, field by field.
TENSOR_NAMES = ("q k v o lse q_scale k_scale v_scale cu_q cu_kv kv_len block_table indptr indices last_page_len "
                "alibi_slopes sinks tree_mask tree_indptr workspace partial_o partial_lse dense_k dense_v slot_mapping "
                "seq_starts token_to_batch source first_key positions").split()


class Tensors(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32)] + [(name, Tensor) for name in TENSOR_NAMES]


class Problem(ctypes.Structure):
    _fields_ = ([("struct_size", ctypes.c_uint32)]
                + [(n, ctypes.c_int32) for n in (
                    "op mask heads_q heads_kv head_dim_qk head_dim_v q_format k_format v_format o_format "
                    "q_scale_kind k_scale_kind v_scale_kind").split()]
                + [(n, ctypes.c_float) for n in (
                    "q_scale_host k_scale_host v_scale_host softmax_scale softcap").split()]
                + [(n, ctypes.c_int32) for n in (
                    "window_left window_right chunk alibi has_sinks layout page_size table requests max_q_len "
                    "max_kv_len").split()]
                + [("total_q", ctypes.c_int64), ("total_kv", ctypes.c_int64),
                   ("q_len", ctypes.POINTER(ctypes.c_int32)), ("kv_len", ctypes.POINTER(ctypes.c_int32)),
                   ("rows", ctypes.c_int64), ("states", ctypes.c_int32), ("source_format", ctypes.c_int32),
                   ("part_tokens", ctypes.c_int32), ("first_key", ctypes.c_void_p), ("positions", ctypes.c_void_p)])


RUN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Problem), ctypes.POINTER(Tensors), ctypes.c_void_p,
                       ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
PLAN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Problem), ctypes.POINTER(Tensors),
                        ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p, ctypes.c_size_t)
REFRESH = RUN
FREE_PLAN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
USE_DEVICE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_char_p, ctypes.c_size_t)
WORKSPACE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.POINTER(Problem))


class Kernel(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("name", ctypes.c_char_p), ("description", ctypes.c_char_p),
                ("arch", ctypes.c_char_p), ("op", ctypes.c_int32), ("promises", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("supports", ctypes.c_void_p), ("arithmetic", ctypes.c_void_p),
                ("workspace_bytes", WORKSPACE), ("workspace_zeroed_bytes", WORKSPACE), ("plan", PLAN),
                ("free_plan", FREE_PLAN), ("refresh", REFRESH), ("run", RUN), ("contracts", ctypes.c_uint32)]


class Backend(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("abi_version", ctypes.c_uint32), ("name", ctypes.c_char_p),
                ("kernel_count", ctypes.c_int32), ("kernels", ctypes.POINTER(ctypes.POINTER(Kernel))),
                ("device_count", ctypes.c_void_p), ("device_info", ctypes.c_void_p), ("use_device", USE_DEVICE)]


def load_kernel(library, name):
    try:
        lib = ctypes.CDLL(str(library))
    except OSError as error:
        sys.exit(f"compare_torch: cannot load {library}: {error}\nBuild it first (cmake --build build --target "
                 "assay_cpu) or name it with --library.")
    lib.assay_backend_open.restype = ctypes.POINTER(Backend)
    backend = lib.assay_backend_open(ctypes.c_uint32(ABI_VERSION))
    if not backend:
        sys.exit(f"compare_torch: {library} does not speak version {ABI_VERSION} of the interface")
    error = ctypes.create_string_buffer(256)
    if backend.contents.use_device(0, error, len(error)) != OK:
        sys.exit(f"compare_torch: {library}: {error.value.decode()}")
    kernels = [backend.contents.kernels[i].contents for i in range(backend.contents.kernel_count)]
    for kernel in kernels:
        if kernel.name.decode() == name:
            return lib, kernel
    sys.exit(f"compare_torch: no kernel {name}; there are: " + " ".join(k.name.decode() for k in kernels))


def view(torch_tensor, fmt):
    tensor = Tensor(data=torch_tensor.data_ptr(), format=fmt, rank=torch_tensor.dim())
    for i in range(torch_tensor.dim()):
        tensor.shape[i], tensor.stride[i] = torch_tensor.shape[i], torch_tensor.stride(i)
    return tensor


class Call:
    """Prefill of `requests` of one length; q, k, v are [tokens, heads, dim]."""

    def __init__(self, torch, kernel, q, k, v, causal, requests):
        fmt = {torch.bfloat16: BF16, torch.float16: FP16, torch.float32: FP32}[q.dtype]
        tokens, heads, dim = q.shape
        n = tokens // requests
        self.kernel, self.o = kernel, q.new_empty(tokens, heads, v.shape[2])
        self.lse = torch.empty(tokens, heads, device=q.device)
        self.bounds = torch.arange(0, tokens + 1, n, dtype=torch.int32, device=q.device)
        self.lengths = torch.full((requests,), n, dtype=torch.int32, device=q.device)
        self.length = (ctypes.c_int32 * requests)(*[n] * requests)
        self.problem = Problem(
            struct_size=ctypes.sizeof(Problem), op=OP_PREFILL, mask=CAUSAL if causal else FULL, heads_q=heads,
            heads_kv=k.shape[1], head_dim_qk=dim, head_dim_v=v.shape[2], q_format=fmt, k_format=fmt, v_format=fmt, o_format=fmt,
            softmax_scale=1.0 / math.sqrt(dim), window_left=-1, window_right=-1, requests=requests,
            max_q_len=n, max_kv_len=n, total_q=tokens, total_kv=tokens, q_len=self.length, kv_len=self.length)
        lse = Tensor() if kernel.contracts & NO_LSE else view(self.lse, FP32)
        self.tensors = Tensors(struct_size=ctypes.sizeof(Tensors), q=view(q, fmt), k=view(k, fmt), v=view(v, fmt),
                               o=view(self.o, fmt), lse=lse, cu_q=view(self.bounds, INT32),
                               cu_kv=view(self.bounds, INT32), kv_len=view(self.lengths, INT32))
        needed = kernel.workspace_bytes(ctypes.byref(kernel), ctypes.byref(self.problem)) if kernel.workspace_bytes else 0
        self.workspace = torch.zeros(needed, dtype=torch.uint8, device=q.device)
        self.tensors.workspace = view(self.workspace, UINT8)
        self.error, self.plan = ctypes.create_string_buffer(256), ctypes.c_void_p()
        if kernel.plan:  # a kernel that has one, such as those that choose, reads it in every run
            self.check("plan", kernel.plan(*self.case(), ctypes.byref(self.plan), self.error, len(self.error)))
        if kernel.refresh:
            self.check("refresh", kernel.refresh(*self.case(), self.plan, None, self.error, len(self.error)))

    def case(self):
        return ctypes.byref(self.kernel), ctypes.byref(self.problem), ctypes.byref(self.tensors)

    def check(self, what, status):
        if status != OK:
            sys.exit(f"compare_torch: the kernel's {what} failed with status {status}: {self.error.value.decode()}")

    def __call__(self):
        self.check("run", self.kernel.run(*self.case(), self.plan, None, self.error, len(self.error)))
        return self.o

    def __del__(self):
        if getattr(self, "plan", None) and self.kernel.free_plan:
            self.kernel.free_plan(ctypes.byref(self.kernel), self.plan)


class HostClock:
    def __init__(self, torch):
        pass

    def seconds(self, side):
        start = time.perf_counter()
        side()
        return time.perf_counter() - start


class DeviceClock:
    """Events round the call. Overwriting the L2 first also keeps the device busy while the host enqueues."""

    def __init__(self, torch):
        self.synchronize = torch.cuda.synchronize
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self.other = torch.empty(256 << 20, dtype=torch.int8, device="cuda")

    def seconds(self, side):
        self.other.zero_()
        self.events[0].record()
        side()
        self.events[1].record()
        self.synchronize()
        return self.events[0].elapsed_time(self.events[1]) * 1e-3


class HeldClock:
    """Calls without a pause for so many seconds, behind half as many that nobody times; two lots of calls lie ahead."""

    def __init__(self, torch, seconds):
        self.cuda, self.held = torch.cuda, seconds
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def run(self, side, calls, seconds):
        lots, count, start = [], 0, time.perf_counter()
        self.events[0].record()
        while count == 0 or time.perf_counter() - start < seconds:
            for _ in range(calls):
                side()
            count += calls
            lots.append(self.cuda.Event())
            lots[-1].record()
            if len(lots) > 2:
                lots.pop(0).synchronize()
        self.events[1].record()
        self.cuda.synchronize()
        return self.events[0].elapsed_time(self.events[1]) * 1e-3 / count

    def seconds(self, side):
        calls = max(1, int(5e-3 / self.run(side, 1, 0)))
        self.run(side, calls, self.held / 2)
        return self.run(side, calls, self.held)


def main():
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--library", type=Path, help="the backend (default build/libassay_DEVICE.so)")
    parser.add_argument("--kernel", help="a prefill kernel of it (default prefill_online_cpu or prefill_mma_gpu)")
    parser.add_argument("--lengths", default="1024,2048,4096", help="tokens, comma separated")
    parser.add_argument("--tokens", type=int, default=0,
                        help="batch x length: as many requests of a length (default: one)")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--kv-heads", type=int, help="default: --heads")
    parser.add_argument("--torch-kernels", default="auto",
                        help="torch's kernels, comma separated: auto (its own choice), cudnn, flash, math; default auto")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--dim-v", type=int, help="head dimension of V and O (default: --dim)")
    parser.add_argument("--formats", default="", help="of fp32, bf16 (CPU), bf16, fp16 (CUDA), comma separated; default all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--held", type=float, default=0,
                        help="CUDA: seconds each side runs without a pause (default: single calls, the L2 overwritten before each)")
    parser.add_argument("--peer", action="append", default=[], metavar="LIBRARY:KERNEL",
                        help="another library's prefill kernel in the same turns; repeatable")
    parser.add_argument("--repeats", type=int, default=9, help="calls of each side; the median counts")
    options = parser.parse_args()
    options.library = options.library or root / "build" / f"libassay_{options.device}.so"
    options.kernel = options.kernel or ("prefill_online_cpu" if options.device == "cpu" else "prefill_mma_gpu")
    options.kv_heads = options.kv_heads or options.heads
    options.dim_v = options.dim_v or options.dim
    if any(":" not in peer for peer in options.peer):
        parser.error("--peer: expected LIBRARY:KERNEL")
    if options.held and options.device == "cpu":
        parser.error("--held: only with --device cuda")
    if options.heads % options.kv_heads:
        parser.error("--heads must be a multiple of --kv-heads")
    choices = options.torch_kernels.split(",")
    if not set(choices) <= {"auto", "cudnn", "flash", "math"}:
        parser.error(f"--torch-kernels {options.torch_kernels}: expected auto, cudnn, flash, math")
    if min(options.heads, options.dim, options.dim_v, options.threads, options.repeats) < 1:
        parser.error("--heads, --dim, --dim-v, --threads and --repeats must be at least 1")
    try:
        lengths = [int(x) for x in options.lengths.split(",")]
        if min(lengths) < 1:
            raise ValueError
    except ValueError:
        parser.error(f"--lengths {options.lengths}: expected positive whole numbers, e.g. 1024,4096")

    # Both sides bring an OpenMP pool; threads of one that spin while the other works would distort it.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    try:
        import torch
    except ImportError as error:
        sys.exit(f"compare_torch: torch is not available ({error}). It is optional: pip install torch numpy")
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("compare_torch: torch sees no GPU here")
    _library, kernel = load_kernel(options.library, options.kernel)
    peers = [load_kernel(*peer.rsplit(":", 1)) for peer in options.peer]
    attention = torch.nn.functional.scaled_dot_product_attention
    backends = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION", "math": "MATH"}

    def torch_side(choice, q, k, v, causal):
        def call():
            return attention(q, k, v, is_causal=causal, enable_gqa=options.heads != options.kv_heads)

        def chosen():
            with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backends[choice])):
                return call()

        return call if choice == "auto" else chosen

    def works(side):
        with warnings.catch_warnings():  # torch says at length why it has none
            warnings.simplefilter("ignore")
            try:
                side()
            except RuntimeError:  # torch: no available kernel
                return False
        return True

    clock = HeldClock(torch, options.held) if options.held else (HostClock if options.device == "cpu" else DeviceClock)(torch)
    turns = random.Random(1)
    where = f"{options.threads} threads" if options.device == "cpu" else torch.cuda.get_device_name()
    print(f"torch {torch.__version__}, {where}, {options.kernel}, heads {options.heads}/{options.kv_heads} of "
          f"{options.dim}{'' if options.dim_v == options.dim else f'/{options.dim_v}'}, median of {options.repeats} "
          f"{f'turns of {options.held} s without a pause' if options.held else 'interleaved calls'}; GF/s, causal counted at half")
    names = [peer.rsplit(":", 1)[1] for peer in options.peer] + [f"torch {choice}" for choice in choices]
    print(f"{'format':<7}{'mask':<8}{'batch':>6}{'tokens':>7}{'assay ms':>10}{'assay GF/s':>12}"
          + "".join(f"{name:>13}" for name in names) + f"{'ratio':>7}{'max diff':>10}")
    wrong = 0
    formats = {"cpu": ((torch.float32, "fp32", 2e-5), (torch.bfloat16, "bf16", 4e-2)),
               "cuda": ((torch.bfloat16, "bf16", 4e-2), (torch.float16, "fp16", 5e-3))}[options.device]
    if options.formats:
        asked = options.formats.split(",")
        if not set(asked) <= {name for _, name, _ in formats}:
            parser.error(f"--formats {options.formats}: expected " + ", ".join(name for _, name, _ in formats))
        formats = [entry for entry in formats if entry[1] in asked]
    for dtype, name, allowed in formats:
        for causal in (True, False):
            for n in lengths:
                requests = max(1, options.tokens // n)
                generator = torch.Generator(options.device).manual_seed(n)
                shapes = (options.heads, options.dim), (options.kv_heads, options.dim), (options.kv_heads, options.dim_v)
                q, k, v = (torch.randn(requests * n, *shape, generator=generator, device=options.device).to(dtype)
                           for shape in shapes)
                ours = Call(torch, kernel, q, k, v, causal, requests)
                # [requests, heads, tokens, dim], laid out as torch likes it best.
                batched = [x.view(requests, n, -1, x.shape[2]).transpose(1, 2).contiguous() for x in (q, k, v)]
                theirs = [torch_side(choice, *batched, causal) for choice in choices]
                takes = [works(side) for side in theirs]
                if not any(takes):
                    sys.exit("compare_torch: none of torch's kernels takes this shape")
                expected = theirs[takes.index(True)]().transpose(1, 2).reshape(ours.o.shape).float()
                others = [Call(torch, peer, q, k, v, causal, requests) for _, peer in peers]
                difference = max((expected - side().float()).abs().max().item() for side in [ours, *others])
                times = [[] for _ in range(len(theirs) + len(others) + 1)]
                sides = list(zip([ours, *others, *theirs], times, [True] * (len(others) + 1) + takes))
                for _ in range(options.repeats):
                    if options.held:
                        turns.shuffle(sides)
                    for side, kept, can in sides:
                        kept.append(clock.seconds(side) if can else math.inf)
                a, *t = (statistics.median(kept) for kept in times)
                pairs = n * (n + 1) / 2 if causal else n * n
                flop = 2.0 * requests * options.heads * (options.dim + options.dim_v) * pairs
                verdict = "" if difference <= allowed else f"  WRONG: more than {allowed}"
                wrong += bool(verdict)
                print(f"{name:<7}{'causal' if causal else 'full':<8}{requests:>6}{n:>7}{a * 1e3:>10.2f}"
                      f"{flop / a * 1e-9:>12.1f}" + "".join(f"{flop / x * 1e-9:>13.1f}" for x in t)
                      + f"{min(t) / a:>7.2f}{difference:>10.1e}{verdict}", flush=True)
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
