"""Which environment variables a plan or a run folder from a stranger may set: known kinds of tunables, nothing else.

Libraries' variables also name files, folders, libraries to load, programs to run, addresses, and whom to write mail to;
each release adds some. So a variable is allowed by what it is, not refused by what it is not. It is of a known library,
and its name says that its value is a number, a size, a time, a switch, or a choice among what the library has.
"""

from __future__ import annotations

import re

from linkgauge.errors import UsageError


def _words(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


_PREFIXES = (
    "NCCL_", "RCCL_", "UCX_", "UCC_", "MPICH_", "MPIR_CVAR_", "FI_", "PSM2_", "HSA_", "HIP_", "GPU_", "ROCR_", "CUDA_",
    "MV2_", "I_MPI_", "GLEX_", "MLX5_", "IBV_", "OMP_", "OMPI_MCA_btl", "OMPI_MCA_pml", "OMPI_MCA_mtl", "OMPI_MCA_coll",
    "OMPI_MCA_osc", "OMPI_MCA_smsc", "OMPI_MCA_accelerator", "OMPI_MCA_opal_common_ucx", "OMPI_MCA_mpi_",
)  # fmt: skip
# By the last word of a name, what its value is: an amount, a choice, something of the machine by its name, a switch.
_AMOUNT = _words(
    "ALIGN ALIGNMENT BACKOFF BANDWIDTH BATCH BUFFERS BUFFSIZE BUFS BUFSIZE BW BYTES CELLS CHANNELS CHILD CHUNK",
    "CHUNKSIZE CNT CONNECTION CONNECTIONS COUNT CREDITS CTAS CTX DEGREE DELAY DEPTH EPS FACTOR FANOUT FRAGS FREQ",
    "FREQUENCY HOPS INC INTERVAL ITER ITERS KVAL LANES LATENCY LEN LENGTH LEVEL LIMIT LINKS MAX MIN MSG MTU NBR",
    "NCHANNELS NICS NTHREADS NUM OVERHEAD PEER PEERS PERCENTAGE PERTHREAD POLL POLLS PPN PRIORITY PROCS QPS RADIX",
    "RAILS RATE RATIO RCVBUF REQUESTS RETRIES RETRY SEGMENTS SEGMENTSIZE SEGS SEGSIZE SIZE SIZES SNDBUF SPIN STEP",
    "STEPS STREAMS SZ TASKS THREADS THRESH THRESHOLD THRESHOLDS TIME TIMEOUT VCIS VNIS WEIGHT WINDOW",
)
_CHOICE = _words(
    "ALGO ALGORITHM ALGOS ALLGATHER ALLGATHERV ALLREDUCE ALLTOALL ALLTOALLV BARRIER BCAST BIND CLASS COMPOSITION",
    "FABRICS FAMILY FLAGS GATHER GATHERV INDEX MECHANISM METHOD MODE NETMOD OPT ORDER PKEY PLACES POLICY PRIO PROTO",
    "PROTOCOL PROTOS PROVIDER REDUCE SCATTER SCATTERV SCHEME SL STRATEGY SUBSYS TC TCLASS TLS TYPE",
)
_OF_THE_MACHINE = _words("DEVICE DEVICES EXCLUDE HCA IFACE IFNAME INCLUDE ORDINAL")
_SWITCH = _words(
    "BLOCKING C2C CACHE COLLECTIVE COLLECTIVES CUDA EAGER EXCLUSIVITY FALLBACK INLINE INTERRUPT INTRA IPC KERNEL",
    "MEMCPY NIC NODELAY NOLOCAL P2P PIN PINNED PIPELINE PROGRESS RDMA READ RECLAIM RNDV SDMA SHM SUPPORT SYMMETRIC",
    "THREAD THROTTLE URING VERBOSE WRITE XNACK",
)
_NCCL_NUMBER = re.compile(r"NCCL_\w*(BUFFSIZE|CHUNKSIZE|NTHREADS|NCHANNELS|CTAS)")
_LAST = _AMOUNT | _CHOICE | _OF_THE_MACHINE | _SWITCH
_ANYWHERE = _words("ALLOW DISABLE DISABLED ENABLE ENABLED FORCE IGNORE NO USE WANT")  # what makes a name a switch's
_WHOLE = _words(
    "CUDA_MODULE_LOADING FI_HMEM I_MPI_DEBUG I_MPI_OFFLOAD MPICH_ENV_DISPLAY NCCL_DEBUG NCCL_GRAPH_REGISTER",
    "NCCL_LOCAL_REGISTER NCCL_NET OMPI_MCA_accelerator OMPI_MCA_btl OMPI_MCA_coll OMPI_MCA_mtl OMPI_MCA_osc",
    "OMPI_MCA_pml OMPI_MCA_smsc UCX_MEM_CUDA_HOOK_MODE UCX_MEM_EVENTS UCX_MEM_MMAP_HOOK_MODE UCX_PROTO_INFO",
)
# No other name that is allowed has these as words: where a value goes, comes from, or is loaded or run.
_NEVER = _words(
    "ADDR ADDRESS ADDRS AGENT CMD COMMAND COMPONENT COMPONENTS CONF CONFIG COREDUMP DEBUGGER DIR DIRECTORY DIRS",
    "DUMP EXEC FILE FILENAME FILES FNAME FOLDER GDB HOME HOOK HOOKS HOST HOSTS ID INJECTION LAUNCHER LIB LIBRARY",
    "LIBS LOG MAIL MODULE MODULES OUTPUT PATH PATHS PIPE PLUGIN PLUGINS PORT PORTS PREFIX PRELOAD ROOT RSH SCRIPT",
    "SERVER SSH TMPDIR TOOL TOOLS URI URL VFS XML",
)


def tuning_variable(name: str, value: str) -> bool:
    """Whether this is a variable of a communication library, with no path in it: one that may be stored and shown."""
    return (
        re.fullmatch(r"[A-Z][A-Z0-9_a-z]*", name) is not None
        and name.startswith(_PREFIXES)
        and "/" not in value
        and value.isprintable()
    )


def safe_variable(name: str, value: str) -> bool:
    """Whether a stranger's file may set this."""
    if not tuning_variable(name, value):
        return False
    words = name.upper().split("_")
    if name in _WHOLE:
        return True
    return _NEVER.isdisjoint(words) and (words[-1] in _LAST or not _ANYWHERE.isdisjoint(words))


def refuse_units(name: str, value: str) -> None:
    """UsageError for an amount of NCCL's that is no number: it reads 8M as 8, and a buffer of 8 bytes crashes it."""
    if _NCCL_NUMBER.fullmatch(name) and not re.fullmatch(r"\s*[-+]?(0[xX][0-9a-fA-F]+|\d+)\s*", value):
        raise UsageError(f"{name} is '{value}': expected a whole number, NCCL reads no unit")
