"""torch < 2.14: kernels of the c10d operators for key CPU that call the backend's own method.

This sees DDP's C++ reducer, functional collectives and coalesced ops alike. gloo must never be
entered with the GIL held: its workers destroy finished ops under the queue's mutex, and that may
need the GIL. The backend's Python methods give it up first; calling the replaced kernel
(``call_boxed``) or a Python subclass of ProcessGroup would not.

Every kernel does on the wire what the kernel it replaces does, so that ranks with and without
capture work together.
"""

from __future__ import annotations

import warnings
from typing import Any, Callable, List

from comminsight_inject.c10d_forms import FORMS, Forms
from comminsight_inject.session import Session
from comminsight_inject.watch import Form, Watch


class KernelDoor:
    """The kernels, installed for as long as the process lives. ``skipped``: forms not covered."""

    def __init__(self, session: Session, watch: Watch, torch: Any) -> None:
        self._session = session
        self._watch = watch
        self._cpu = torch.device("cpu")
        self._unbox = torch._C._distributed_c10d.ProcessGroup.unbox
        self.skipped: List[str] = []
        self._library = self._install(torch, Forms(self.run, torch))

    def attach(self, group: Any) -> None:
        """Nothing to do: the kernels see every group."""

    def _install(self, torch: Any, forms: Forms) -> Any:
        library = torch.library.Library("c10d", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "overriding a previously registered kernel" is meant
            for name, n_arguments in FORMS.items():
                try:
                    schema = getattr(torch.ops.c10d, name).default._schema
                    if len(schema.arguments) != n_arguments:
                        raise TypeError(name)
                    library.impl(name, getattr(forms, name), "CPU", allow_override=True)
                except Exception:  # an older or newer schema: this form stays unseen, and counted
                    self.skipped.append(name)
        return library

    def run(self, boxed_group: Any, name: str, form: Form, call: Callable[[Any], Any]) -> Any:
        """The Work of ``call(backend)``, which runs outside of every guard.

        A call that makes its Work from a future gives (Work, future).
        """
        process_group = self._unbox(boxed_group)
        backend = process_group._get_backend(self._cpu)
        group = self._session.groups.get(process_group.group_name)
        if group is None or not group.comm_index:
            work = call(backend)
            return work[0] if type(work) is tuple else work
        handle = self._watch.begin(group, form)
        try:
            work = call(backend)
        except BaseException:
            self._watch.failed(handle)
            raise
        future = None
        if type(work) is tuple:
            work, future = work
        self._watch.follow(handle, group, work, name, future, form.result)
        return work
