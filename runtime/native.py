"""Build a generated CUDA/NCCL project and call it from Python: on GPUs, or on a CPU through the stand-in.

    library = load(build(directory, target="cpu"))
    with library.connect(rank, unique_id, max_bytes) as comm:   # every rank, each in its thread or process
        comm.allreduce(gradient, op="avg")
        comm.wait()

Buffers are torch tensors or numpy arrays, contiguous, of the memory that the library was built for. Torch is not
imported here.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from latecomer.schedules.errors import InputError, LatecomerError

Target = Literal["cpu", "cuda"]

CPU_FLAGS: Final = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-fPIC", "-pthread")
CUDA_FLAGS: Final = ("-std=c++17", "-O2", "-Xcompiler=-Wall,-fPIC,-pthread")
LIBRARY: Final = ("allreduce.cu", "plan_table.cpp")
TYPES: Final = {"float32": 7, "float64": 8, "float16": 6, "bfloat16": 9, "int32": 2, "int64": 4}
"""Name of a type → NCCL's number (nccl.h, ncclDataType_t)."""
OPS: Final = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
"""Name of an operation → NCCL's number (nccl.h, ncclRedOp_t)."""
UNIQUE_ID_BYTES: Final = 128


def shim_directory() -> Path:
    """Where the CPU stand-in's headers are."""
    return Path(__file__).resolve().parent / "cpu_shim"


def find_nccl() -> Path | None:
    """A directory with include/nccl.h: `NCCL_ROOT`, the wheel nvidia-nccl-cu13, or /usr; None where there is none."""
    candidates = [Path(root)] if (root := os.environ.get("NCCL_ROOT")) else []
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        spec = None
    candidates += [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    candidates.append(Path("/usr"))
    return next((place for place in candidates if (place / "include" / "nccl.h").is_file()), None)


def build(
    project: str | Path,
    *,
    target: Target = "cpu",
    what: Literal["library", "benchmark"] = "library",
    output: str | Path | None = None,
    flags: Sequence[str] = (),
    architectures: Sequence[int] = (80, 90, 100),
    cache: str | Path | None = None,
) -> Path:
    """Compile the project that `write_project` wrote; the library or program made.

    Parameters
    ----------
    flags:
        More flags for the compiler and the linker.
    architectures:
        Compute capabilities ×10 to compile for; for `cuda` only.
    cache:
        A directory for object files, found again by what they were made from; None: the project's own `build-TARGET`.

    Raises
    ------
    InputError
        No compiler, no NCCL (for `cuda`), or no such project.
    LatecomerError
        The compiler refused the source; the message is the compiler's.
    """
    root = Path(project).resolve()
    if not (root / "allreduce.cu").is_file():
        raise InputError(f"{root} is not a project written by `latecomer export --to nccl`: it has no allreduce.cu")
    objects = Path(cache) if cache else root / f"build-{target}"
    objects.mkdir(parents=True, exist_ok=True)
    compiler, compile_flags, link_flags = _toolchain(target, architectures)
    sources = [root / name for name in LIBRARY]
    if what == "benchmark":
        sources = sorted([*root.glob("*.cpp"), *root.glob("*.cu")])
    headers = [*root.glob("*.h"), *(shim_directory().glob("*.h") if target == "cpu" else ())]
    state = hashlib.sha256(repr((compiler, compile_flags, flags)).encode())
    for header in sorted(headers):
        state.update(header.read_bytes())
    made = []
    for source in sources:
        key = state.copy()
        key.update(source.read_bytes())
        object_file = objects / f"{source.stem}-{key.hexdigest()[:20]}.o"
        if not object_file.exists():
            part = object_file.with_suffix(f".{os.getpid()}.part")
            _run([*compiler, *compile_flags, *flags, f"-I{root}", "-c", str(source), "-o", str(part)])
            part.replace(object_file)
        made.append(str(object_file))
    name = "latecomer_bench" if what == "benchmark" else "liblatecomer_allreduce.so"
    result = Path(output) if output else root / f"build-{target}" / name
    result.parent.mkdir(parents=True, exist_ok=True)
    shared = ["-shared"] if what == "library" else []
    linker = ["g++"] if target == "cpu" else ["nvcc"]
    _run([*linker, *made, *shared, *flags, *link_flags, "-o", str(result)])
    return result


def _toolchain(target: Target, architectures: Sequence[int]) -> tuple[list[str], list[str], list[str]]:
    """(compiler, flags to compile with, flags to link with)."""
    if target == "cpu":
        if shutil.which("g++") is None:
            raise InputError("no g++ found; the CPU stand-in needs a C++17 compiler of that name")
        return ["g++", "-x", "c++"], [*CPU_FLAGS, f"-I{shim_directory()}"], ["-pthread"]
    nccl = find_nccl()
    if shutil.which("nvcc") is None:
        raise InputError("no nvcc found: put the CUDA toolkit's bin directory on PATH")
    if nccl is None:
        raise InputError("no nccl.h found: set NCCL_ROOT, or install the wheel nvidia-nccl-cu13")
    code = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in architectures]
    directory = nccl / "lib"
    wheel = (directory / "libnccl.so.2").is_file()  # the wheel has no libnccl.so
    link = [f"-L{directory}", "-l:libnccl.so.2", f"-Xlinker=-rpath={directory}"] if wheel else ["-lnccl"]
    return ["nvcc"], [*CUDA_FLAGS, *code, f"-I{nccl / 'include'}"], link


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LatecomerError(f"{command[0]} failed:\n{done.stderr.strip() or done.stdout.strip()}")


def load(path: str | Path) -> Library:
    """The library that `build` made. Raises `InputError` where it cannot be loaded."""
    return Library(path)


class Library:
    """A loaded library: one plan, for `ranks` ranks."""

    def __init__(self, path: str | Path) -> None:
        try:
            self._calls = ctypes.CDLL(str(path))
        except OSError as error:
            raise InputError(f"cannot load {path}: {error}") from error
        handle, size, integer = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        for name, arguments in {
            "latecomer_unique_id": [ctypes.c_char_p],
            "latecomer_connect": [ctypes.POINTER(handle), integer, integer, ctypes.c_char_p, size, integer],
            "latecomer_allreduce": [handle, handle, size, integer, integer, handle, handle],
            "latecomer_wait": [handle, handle],
            "latecomer_free": [handle],
        }.items():
            getattr(self._calls, name).argtypes = arguments
        self._calls.latecomer_last_error.restype = ctypes.c_char_p
        self.ranks: int = self._calls.latecomer_ranks()

    def call(self, name: str, *arguments: Any) -> None:
        """Call the C function `latecomer_<name>`; `LatecomerError` with its message when it fails."""
        if getattr(self._calls, f"latecomer_{name}")(*arguments):
            raise LatecomerError(self._calls.latecomer_last_error().decode(errors="replace"))

    def unique_id(self) -> bytes:
        """What one rank makes and gives to all others (by a torch store, a file, …) before they connect."""
        made = ctypes.create_string_buffer(UNIQUE_ID_BYTES)
        self.call("unique_id", made)
        return made.raw

    def connect(
        self, rank: int, unique_id: bytes, max_bytes: int, *, device: int | None = None, late_rank: int | None = None
    ) -> Communicator:
        """Connect as `rank`; returns when all ranks have done so.

        `max_bytes`: the largest message. `device`: the GPU, by default `rank`. `late_rank`: None as planned; the same
        on all ranks.
        """
        if len(unique_id) != UNIQUE_ID_BYTES:
            raise InputError(f"a unique id is {UNIQUE_ID_BYTES} bytes, not {len(unique_id)}")
        handle = ctypes.c_void_p()
        place = rank if device is None else device
        late = -1 if late_rank is None else late_rank
        self.call("connect", ctypes.byref(handle), rank, place, unique_id, max_bytes, late)
        return Communicator(self, handle)


class Communicator:
    """One rank's connection with the others; `Library.connect` makes it."""

    def __init__(self, library: Library, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle: ctypes.c_void_p | None = handle
        self._in_use: list[Any] = []

    def allreduce(self, send: Any, recv: Any = None, *, op: str = "sum", stream: Any = None) -> None:
        """Queue the AllReduce of `send` into `recv` (None: in place); `wait` says when it is done.

        `stream`: a torch stream or its address; None: the default stream of the rank's device. The buffers are kept
        alive until `wait`.
        """
        if op not in OPS:
            raise InputError(f"no operation is called {op!r}; there are {', '.join(OPS)}")
        source = _Buffer(send)
        target = source if recv is None else _Buffer(recv)
        if (source.dtype, source.count) != (target.dtype, target.count):
            raise InputError(
                f"send is {source.count} {source.dtype}, recv {target.count} {target.dtype}; they must be alike"
            )
        self._in_use += [send, recv]
        self._library.call(
            "allreduce",
            source.address,
            target.address,
            source.count,
            TYPES[source.dtype],
            OPS[op],
            self._open(),
            _stream(stream),
        )

    def wait(self, stream: Any = None) -> None:
        """Until all that was queued on `stream` is done. Raises `LatecomerError` with what went wrong there."""
        self._library.call("wait", self._open(), _stream(stream))
        self._in_use.clear()

    def close(self) -> None:
        """Free the scratch and the connection; nothing may be queued any more. Again: nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._library.call("free", handle)

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise InputError("this communicator is closed")
        return self._handle

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Buffer:
    """Address, type and number of elements of a torch tensor or numpy array."""

    def __init__(self, data: Any) -> None:
        if hasattr(data, "data_ptr"):
            contiguous, self.address, self.count = data.is_contiguous(), data.data_ptr(), data.numel()
            self.dtype = str(data.dtype).removeprefix("torch.")
        elif hasattr(data, "ctypes"):
            contiguous, self.address, self.count = data.flags.c_contiguous, data.ctypes.data, data.size
            self.dtype = data.dtype.name
        else:
            raise InputError(f"a buffer must be a torch tensor or a numpy array, not {type(data).__name__}")
        if not contiguous:
            raise InputError("a buffer must be contiguous; call .contiguous() or numpy.ascontiguousarray first")
        if self.dtype not in TYPES:
            raise InputError(f"buffers of {self.dtype} cannot be reduced; there are {', '.join(TYPES)}")


def _stream(stream: Any) -> int | None:
    address = getattr(stream, "cuda_stream", stream)
    return None if address is None else int(address)
