"""Which algorithms a benchmark may ask a backend for, and which collectives have them.

Open MPI is asked by the parameters ``coll_tuned_OP_algorithm``. What it then runs has the name of a
function of its library, ``ompi_coll_base_OP_intra_FUNCTION``; both names stand here side by side.
"""

from __future__ import annotations

AUTO = "Auto"
COLLECTIVES = (
    "all_reduce", "reduce_scatter+all_gather", "reduce_scatter", "all_gather", "broadcast",
    "all_to_all", "send_recv",
)  # fmt: skip
# NCCL ends with an error where another op is asked for by Tree
NCCL_TREE_COLLECTIVES = ("all_reduce",)
MPI_OPS = {
    "all_reduce": ("allreduce",),
    "reduce_scatter+all_gather": ("reduce_scatter", "allgather"),
    "reduce_scatter": ("reduce_scatter",),
    "all_gather": ("allgather",),
    "broadcast": ("bcast",),
    "all_to_all": ("alltoall",),
    "send_recv": (),
}
# algorithm -> op -> (value of the parameter, function that then runs)
OPENMPI: dict[str, dict[str, tuple[str, str]]] = {
    "Ring": {
        "allreduce": ("ring", "ring"),
        "reduce_scatter": ("ring", "ring"),
        "allgather": ("ring", "ring"),
    },
    # reduce to a root by a binomial tree, then broadcast by one
    "Tree": {
        "allreduce": ("nonoverlapping", "nonoverlapping"),
        "reduce": ("binomial", "binomial"),
        "bcast": ("binomial", "binomial"),
    },
    "RecursiveDoubling": {
        "allreduce": ("recursive_doubling", "recursivedoubling"),
        "allgather": ("recursive_doubling", "recursivedoubling"),
    },
    "Rabenseifner": {"allreduce": ("rabenseifner", "redscat_allgather")},
    "SegmentedRing": {"allreduce": ("segmented_ring", "ring_segmented")},
    "Bruck": {"allgather": ("bruck", "bruck"), "alltoall": ("modified_bruck", "bruck")},
    "Pairwise": {"alltoall": ("pairwise", "pairwise")},
    "Linear": {
        "allreduce": ("basic_linear", "basic_linear"),
        "allgather": ("linear", "basic_linear"),
        "bcast": ("basic_linear", "basic_linear"),
        "alltoall": ("linear", "basic_linear"),
    },
}
# without a size of its segments the segmented ring has one, and runs as a ring
OPENMPI_SIZES = {"SegmentedRing": {"allreduce_algorithm_segmentsize": "65536"}}
ALGORITHMS: dict[str, tuple[str, ...]] = {
    "nccl": (AUTO, "Ring", "Tree"),
    "gloo": (AUTO, "Ring", "Tree"),
    "mpi": (AUTO, *OPENMPI),
}
# what is measured when nothing is asked for; gloo has no choice of algorithms
DEFAULT_ALGORITHMS: dict[str, tuple[str, ...]] = {
    "nccl": (AUTO, "Ring", "Tree"),
    "gloo": (AUTO,),
    "mpi": (AUTO, "Ring", "Tree"),
}
PROTOCOLS: dict[str, tuple[str, ...]] = {
    "nccl": (AUTO, "LL", "LL128", "Simple"),
    "gloo": (AUTO,),
    "mpi": (AUTO,),
}


def collectives_of(backend: str, algorithm: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of ``names`` for which the backend has the algorithm."""
    if algorithm == AUTO:
        return names
    if backend == "mpi":
        known = OPENMPI.get(algorithm, {})
        return tuple(name for name in names if MPI_OPS[name] and known.keys() >= {*MPI_OPS[name]})
    if backend == "nccl" and algorithm == "Tree":
        return tuple(name for name in names if name in NCCL_TREE_COLLECTIVES)
    return names
