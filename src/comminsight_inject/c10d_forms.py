"""The c10d operators, each rebuilt as the same call on the backend, with the form of its record.

The methods have the names and the arguments of the operators, and return what those return.
"""

# ruff: noqa: D102, B905 - methods are named as the operators they replace; no strict zip in 3.9
from __future__ import annotations

import datetime
from typing import Any, Callable, Dict, List, Tuple

from comminsight_inject import codes
from comminsight_inject.watch import Form

# Operator -> number of its schema's arguments in torch 2.13.
FORMS = {
    "allreduce_": 6,
    "allreduce_coalesced_": 5,
    "broadcast_": 6,
    "reduce_": 7,
    "allgather_": 5,
    "_allgather_base_": 5,
    "allgather_coalesced_": 4,
    "allgather_into_tensor_coalesced_": 4,
    "reduce_scatter_": 6,
    "_reduce_scatter_base_": 6,
    "reduce_scatter_tensor_coalesced_": 6,
    "gather_": 6,
    "scatter_": 6,
    "alltoall_": 5,
    "alltoall_base_": 7,
    "send": 4,
    "recv_": 4,
    "recv_any_source_": 3,
    "barrier": 5,
    "monitored_barrier_": 5,
}

MAX_SHARED = 64

Run = Callable[[Any, str, Form, Callable[[Any], Any]], Any]


def _flat(lists: Any) -> List[Any]:
    return [tensor for tensors in lists for tensor in tensors]


def _form(op: int, tensors: Any, async_op: Any, **fields: Any) -> Form:
    """A collective; several tensors of one coalesced call are folded into one record."""
    flags = codes.FLAG_ASYNC if async_op else 0
    if fields.get("n_folded"):
        flags |= codes.FLAG_COALESCED
    return Form(op, tensors, flags=flags, **fields)


class Forms:
    """``run(group, operator, form, call)`` records around ``call(backend)`` and gives its Work."""

    def __init__(self, run: Run, torch: Any) -> None:
        self._run = run
        self._torch = torch
        self._lib = torch._C._distributed_c10d
        self._red_ops: Dict[int, Any] = {}
        self._shared: Dict[Tuple[str, Any, int, int], Any] = {}

    def _plain_options(self, kind: str, async_op: Any, timeout: int = -1, red: int = -1) -> Any:
        """Options that say no more than this. Built once: backends only read them."""
        key = kind, async_op, timeout, red
        options = self._shared.get(key)
        if options is None:
            if len(self._shared) >= MAX_SHARED:  # timeouts that never repeat
                self._shared.clear()
            fields = {"reduceOp": self._red_op(red)} if red >= 0 else {}
            options = self._shared[key] = self._options(kind, async_op, timeout, **fields)
        return options

    def _options(self, kind: str, async_op: Any, timeout: int = -1, **fields: Any) -> Any:
        """Options as the replaced kernel builds them; a timeout of -1 leaves the default."""
        options = getattr(self._lib, kind)()
        options.asyncOp = async_op
        if timeout >= 0:
            options.timeout = datetime.timedelta(milliseconds=timeout)
        for name, value in fields.items():
            setattr(options, name, value)
        return options

    def _red_op(self, number: int) -> Any:
        known = self._red_ops.get(number)
        if known is None:
            kind = self._lib.ReduceOp
            known = self._red_ops[number] = kind(kind.RedOpType(number))
        return known

    def allreduce_(
        self, tensors: Any, group: Any, red: Any, _sparse: Any, async_op: Any = True, ms: Any = -1
    ) -> Any:
        number = red.op()
        opts = self._plain_options("AllreduceOptions", async_op, ms, number)
        form = _form(codes.OP_ALL_REDUCE, tensors, async_op, red_op=codes.red_op_code(number))
        work = self._run(group, "allreduce_", form, lambda b: b.allreduce(tensors, opts))
        return tensors, work.boxed()

    def allreduce_coalesced_(
        self, tensors: Any, group: Any, red: Any, async_op: Any = True, ms: Any = -1
    ) -> Any:
        number = red.op()
        opts = self._plain_options("AllreduceCoalescedOptions", async_op, ms, number)
        n = len(tensors)
        form = _form(
            codes.OP_ALL_REDUCE, tensors, async_op, red_op=codes.red_op_code(number), n_folded=n
        )
        return self._run(
            group, "allreduce_coalesced_", form, lambda b: b.allreduce_coalesced(tensors, opts)
        ).boxed()

    def broadcast_(
        self, tensors: Any, group: Any, root: Any, root_tensor: Any,
        async_op: Any = True, ms: Any = -1,
    ) -> Any:  # fmt: skip
        opts = self._options(
            "BroadcastOptions", async_op, ms, rootRank=root, rootTensor=root_tensor
        )
        form = _form(codes.OP_BROADCAST, tensors, async_op, peer_or_root=root)
        work = self._run(group, "broadcast_", form, lambda b: b.broadcast(tensors, opts))
        return tensors, work.boxed()

    def reduce_(
        self, tensors: Any, group: Any, red: Any, root: Any, root_tensor: Any,
        async_op: Any = True, ms: Any = -1,
    ) -> Any:  # fmt: skip
        number = red.op()
        opts = self._options(
            "ReduceOptions", async_op, ms,
            reduceOp=self._red_op(number), rootRank=root, rootTensor=root_tensor,
        )  # fmt: skip
        form = _form(
            codes.OP_REDUCE, tensors, async_op, red_op=codes.red_op_code(number), peer_or_root=root
        )
        return self._run(group, "reduce_", form, lambda b: b.reduce(tensors, opts)).boxed()

    def allgather_(
        self, outputs: Any, inputs: Any, group: Any, async_op: Any = True, ms: Any = -1
    ) -> Any:
        opts = self._plain_options("AllgatherOptions", async_op, ms)
        form = _form(codes.OP_ALL_GATHER, _flat(outputs), async_op)
        work = self._run(group, "allgather_", form, lambda b: b.allgather(outputs, inputs, opts))
        return outputs, work.boxed()

    def _allgather_base_(
        self, output: Any, input_: Any, group: Any, async_op: Any = True, ms: Any = -1
    ) -> Any:
        opts = self._plain_options("AllgatherOptions", async_op, ms)
        form = _form(codes.OP_ALL_GATHER, [output], async_op)
        work = self._run(
            group, "_allgather_base_", form, lambda b: b._allgather_base(output, input_, opts)
        )
        return output, work.boxed()

    def allgather_coalesced_(
        self, output_lists: Any, inputs: Any, group: Any, async_op: Any = True
    ) -> Any:
        opts = self._plain_options("AllgatherOptions", async_op)
        form = _form(codes.OP_ALL_GATHER, _flat(output_lists), async_op, n_folded=len(inputs))
        return self._run(
            group, "allgather_coalesced_", form,
            lambda b: b.allgather_coalesced(output_lists, inputs, opts),
        ).boxed()  # fmt: skip

    def allgather_into_tensor_coalesced_(
        self, outputs: Any, inputs: Any, group: Any, async_op: Any = True
    ) -> Any:
        """gloo's own way: chunks of the outputs, gathered by one coalesced op."""
        opts = self._plain_options("AllgatherOptions", async_op)
        form = _form(codes.OP_ALL_GATHER, outputs, async_op, n_folded=len(inputs))

        def call(backend: Any) -> Any:
            chunks = [output.chunk(backend.size()) for output in outputs]
            by_rank = [list(of_rank) for of_rank in zip(*chunks)]
            return backend.allgather_coalesced(by_rank, inputs, opts)

        return self._run(group, "allgather_into_tensor_coalesced_", form, call).boxed()

    def reduce_scatter_(
        self, outputs: Any, inputs: Any, group: Any, red: Any, async_op: Any = True, ms: Any = -1
    ) -> Any:
        number = red.op()
        opts = self._plain_options("ReduceScatterOptions", async_op, ms, number)
        form = _form(
            codes.OP_REDUCE_SCATTER, _flat(inputs), async_op, red_op=codes.red_op_code(number)
        )
        work = self._run(
            group, "reduce_scatter_", form, lambda b: b.reduce_scatter(outputs, inputs, opts)
        )
        return outputs, work.boxed()

    def _reduce_scatter_base_(
        self, output: Any, input_: Any, group: Any, red: Any, async_op: Any = True, ms: Any = -1
    ) -> Any:
        number = red.op()
        opts = self._plain_options("ReduceScatterOptions", async_op, ms, number)
        form = _form(codes.OP_REDUCE_SCATTER, [input_], async_op, red_op=codes.red_op_code(number))
        work = self._run(
            group, "_reduce_scatter_base_", form,
            lambda b: b._reduce_scatter_base(output, input_, opts),
        )  # fmt: skip
        return output, work.boxed()

    def reduce_scatter_tensor_coalesced_(
        self, outputs: Any, inputs: Any, group: Any, red: Any, async_op: Any = True, ms: Any = -1
    ) -> Any:
        number = red.op()
        n = len(inputs)
        result = outputs[0] if n == 1 else None  # functional collectives come this way
        form = _form(
            codes.OP_REDUCE_SCATTER,
            inputs,
            async_op,
            red_op=codes.red_op_code(number),
            n_folded=n,
            result=result,
        )
        scatter = self._plain_options("ReduceScatterOptions", async_op, ms, number)
        reduce = self._plain_options("AllreduceOptions", async_op, red=number)

        def call(backend: Any) -> Any:
            return self._reduce_scatter_all(backend, outputs, inputs, scatter, reduce)

        return self._run(group, "reduce_scatter_tensor_coalesced_", form, call).boxed()

    def _reduce_scatter_all(
        self, backend: Any, outputs: Any, inputs: Any, scatter: Any, reduce: Any
    ) -> Any:
        """(Work, its future) for several tensors, by gloo's way: reduce copies, keep a part."""
        pairs = list(zip(outputs, inputs))
        n_ranks, rank = backend.size(), backend.rank()
        for output, input_ in pairs:
            parts = [output.size(0) * n_ranks, *output.shape[1:]] if output.dim() else []
            if len(pairs) == 1 or parts != list(input_.shape) or output.dtype != input_.dtype:
                return backend._reduce_scatter_base(output, input_, scatter)  # or its error
        copies = [input_.clone() for input_ in inputs]
        futures = [backend.allreduce([buffer], reduce).get_future() for buffer in copies]

        def keep_part(reduced: Any) -> Any:
            for future in reduced.value():
                future.value()  # its error becomes ours
            for output, buffer in zip(outputs, copies):
                output.copy_(buffer.chunk(n_ranks)[rank])
            return outputs

        future = self._torch.futures.collect_all(futures).then(keep_part)
        return self._lib._create_work_from_future(future), future

    def gather_(
        self, outputs: Any, inputs: Any, group: Any, root: Any, async_op: Any = True, ms: Any = -1
    ) -> Any:
        opts = self._options("GatherOptions", async_op, ms, rootRank=root)
        form = _form(codes.OP_GATHER, inputs, async_op, peer_or_root=root, is_per_rank=True)
        work = self._run(group, "gather_", form, lambda b: b.gather(outputs, inputs, opts))
        return work.boxed()

    def scatter_(
        self, outputs: Any, inputs: Any, group: Any, root: Any, async_op: Any = True, ms: Any = -1
    ) -> Any:
        opts = self._options("ScatterOptions", async_op, ms, rootRank=root)
        form = _form(codes.OP_SCATTER, outputs, async_op, peer_or_root=root, is_per_rank=True)
        work = self._run(group, "scatter_", form, lambda b: b.scatter(outputs, inputs, opts))
        return outputs, work.boxed()

    def alltoall_(
        self, outputs: Any, inputs: Any, group: Any, async_op: Any = True, ms: Any = -1
    ) -> Any:
        opts = self._plain_options("AllToAllOptions", async_op, ms)
        form = _form(codes.OP_ALL_TO_ALL, inputs, async_op)
        work = self._run(group, "alltoall_", form, lambda b: b.alltoall(outputs, inputs, opts))
        return outputs, work.boxed()

    def alltoall_base_(
        self, output: Any, input_: Any, group: Any, out_split: Any, in_split: Any,
        async_op: Any = True, ms: Any = -1,
    ) -> Any:  # fmt: skip
        opts = self._plain_options("AllToAllOptions", async_op, ms)
        form = _form(codes.OP_ALL_TO_ALL, [input_], async_op)
        return self._run(
            group, "alltoall_base_", form,
            lambda b: b.alltoall_base(output, input_, out_split, in_split, opts),
        ).boxed()  # fmt: skip

    def send(self, tensors: Any, group: Any, dst: Any, tag: Any) -> Any:
        form = Form(codes.OP_SEND, tensors, peer_or_root=dst)
        return self._run(group, "send", form, lambda b: b.send(tensors, dst, tag)).boxed()

    def recv_(self, tensors: Any, group: Any, src: Any, tag: Any) -> Any:
        form = Form(codes.OP_RECV, tensors, peer_or_root=src)
        return self._run(group, "recv_", form, lambda b: b.recv(tensors, src, tag)).boxed()

    def recv_any_source_(self, tensors: Any, group: Any, tag: Any) -> Any:
        form = Form(codes.OP_RECV, tensors)
        work = self._run(group, "recv_any_source_", form, lambda b: b.recv_anysource(tensors, tag))
        return work.boxed()

    def barrier(
        self, _tensor: Any, group: Any, device_ids: Any, async_op: Any = True, ms: Any = -1
    ) -> Any:
        opts = self._options("BarrierOptions", async_op, ms, device_ids=device_ids)
        form = _form(codes.OP_BARRIER, (), async_op)
        return self._run(group, "barrier", form, lambda b: b.barrier(opts)).boxed()

    def monitored_barrier_(
        self, _tensor: Any, group: Any, _device_ids: Any, ms: Any, wait_all_ranks: Any
    ) -> None:
        arguments: Dict[str, Any] = {"wait_all_ranks": wait_all_ranks}
        if ms >= 0:
            arguments["timeout"] = datetime.timedelta(milliseconds=ms)
        form = _form(codes.OP_BARRIER, (), async_op=False)
        self._run(group, "monitored_barrier_", form, lambda b: b.monitored_barrier(**arguments))
