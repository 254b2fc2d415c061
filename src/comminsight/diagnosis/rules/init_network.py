"""Ranks that cannot meet: an interface of one host only, a store or a peer out of reach."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from comminsight.analysis.log_index import events_with, lines_with
from comminsight.analysis.log_init import InitPhase, LogInit, log_init
from comminsight.analysis.log_meeting import (
    Offer,
    connect_failures,
    interfaces_there,
    is_of_one_host,
    offers,
    store_clients,
    subnet_of,
)
from comminsight.analysis.log_ranks import LogRanks, ranks_of
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, job_verdict
from comminsight.diagnosis.rules.init_stuck import PATIENCE_NS
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode
from comminsight.model.verdict import Cause, Confidence, Evidence, Message

RULE = "init_network"
CONSEQUENCES = frozenset(
    {Cause.INIT_STUCK, Cause.PEER_UNREACHABLE, Cause.INIT_STORE_UNREACHABLE}
)  # fmt: skip


def init_network_rule(job: JobEvidence) -> Iterator[Claim]:
    """INIT_WRONG_INTERFACE, INIT_STORE_UNREACHABLE or PEER_UNREACHABLE of ranks that had no
    communicator yet."""
    if not job.logs:
        return
    ranks = ranks_of(job.logs, job.world_size)
    init = log_init(job.logs, ranks, patience_ns=PATIENCE_NS)
    for found in (
        _wrong_interface(job, ranks, init),
        _no_interface(job, ranks),
        _store(job, ranks, init),
        _unreachable(job, ranks, init),
    ):
        if found is not None:
            is_interface = found.cause is Cause.INIT_WRONG_INTERFACE
            explained = CONSEQUENCES if is_interface else frozenset({Cause.INIT_STUCK})
            yield Claim(job_verdict(job, found), explains=explained)


def _wrong_interface(job: JobEvidence, ranks: LogRanks, init: LogInit) -> JobFinding | None:
    """The ranks that offer an address of their own host only, while others offer one that more
    than one host can reach, and the communicator is not complete or a peer was refused."""
    found = offers(job.logs, ranks)
    hosts = {offer.host for offer in found}
    odd = [offer for offer in found if is_of_one_host(offer)]
    usual = [offer for offer in found if not is_of_one_host(offer)]
    failed = connect_failures(job.logs, ranks)
    has_failed = bool(failed) or (init.has_stopped and not _is_complete(init))
    is_alone = not usual and not any(subnet_of(one.peer) == "127" for one in failed)
    if not odd or len(hosts) < 2 or not has_failed or is_alone:
        return None
    culprits = tuple(sorted({offer.rank for offer in odd} - {-1}))
    common = Counter(offer.interface for offer in usual).most_common(1)
    interface = common[0][0] if common else ""
    return JobFinding(
        rule=RULE, cause=Cause.INIT_WRONG_INTERFACE, confidence=Confidence.MEDIUM,
        culprits=culprits, victims=tuple(sorted({one.rank for one in usual} - {-1})),
        place=Place(node=", ".join(sorted({one.host for one in odd}))),
        evidence=(*_given(odd), *_usual(usual), *_refused(job, ranks)),
        next_actions=(message(logs.SET_INTERFACE, interface=interface),),
    )  # fmt: skip


def _is_complete(init: LogInit) -> bool:
    return bool(init.phases) and set(init.phases.values()) == {InitPhase.COMPLETE}


def _given(odd: list[Offer]) -> Iterator[Evidence]:
    alike: dict[tuple[str, str], list[Offer]] = defaultdict(list)
    for offer in odd:
        alike[offer.interface, offer.address].append(offer)
    for (interface, address), own in sorted(alike.items()):
        said = message(
            logs.INTERFACE_GIVEN, ranks=sorted({one.rank for one in own} - {-1}),
            interface=interface, address=address,
        )  # fmt: skip
        yield Evidence(kind="log", message=said, text=own[0].event.text)


def _usual(usual: list[Offer]) -> Iterator[Evidence]:
    names: dict[str, set[int]] = defaultdict(set)
    for offer in usual:
        names[offer.interface].add(offer.rank)
    for interface, own in sorted(names.items()):
        said = message(logs.INTERFACE_USUAL, ranks=sorted(own - {-1}), interface=interface)
        yield Evidence(kind="log", message=said)


def _refused(job: JobEvidence, ranks: LogRanks) -> Iterator[Evidence]:
    for one in connect_failures(job.logs, ranks)[:4]:
        said = message(
            logs.ADDRESS_REFUSED, ranks=[one.rank] if one.rank >= 0 else [], peer=one.peer,
            error=one.error,
        )  # fmt: skip
        yield Evidence(kind="log", message=said, text=one.event.text)


def _no_interface(job: JobEvidence, ranks: LogRanks) -> JobFinding | None:
    """Ranks that found no interface at all; the filter and what is there are told beside it."""
    lines = [
        (ranks.rank_of(log, event), event)
        for log, event in lines_with(job.logs, LogCode.NCCL_NO_INTERFACE)
    ]
    if not lines:
        return None
    filters = _filters(job)
    told = interfaces_there(job.logs)
    culprits = tuple(sorted({rank for rank, _ in lines} - {-1}))
    said = message(logs.FILTER_MATCHED_NONE, value=", ".join(filters), interfaces=", ".join(told))
    plain = sorted({value.lstrip("=^") for value in filters if value[:1] == "="})
    actions: tuple[Message, ...] = tuple(message(logs.PLAIN_FILTER, value=one) for one in plain)
    known = [name for name in plain if name in told]
    return JobFinding(
        rule=RULE, cause=Cause.INIT_WRONG_INTERFACE,
        confidence=Confidence.MEDIUM if known or filters else Confidence.LOW, culprits=culprits,
        evidence=(Evidence(kind="log", message=said, text=lines[0][1].text),),
        next_actions=actions or (message(logs.SET_INTERFACE, interface=", ".join(told[:4])),),
    )  # fmt: skip


def _filters(job: JobEvidence) -> list[str]:
    found = {
        str(event.values.get("value", ""))
        for event in events_with(job.logs, [LogCode.NCCL_ENV, LogCode.ENVIRONMENT])
        if event.values.get("name") == "NCCL_SOCKET_IFNAME"
    }
    return sorted(found)


def _store(job: JobEvidence, ranks: LogRanks, init: LogInit) -> JobFinding | None:
    """Clients that gave up on the store, of ranks that never had a communicator."""
    done = set(init.ranks(InitPhase.COMPLETE))
    clients = [one for one in store_clients(job.logs, ranks) if one.rank not in done]
    if not clients:
        return None
    address, port = clients[0].address, clients[0].port
    victims = sorted({one.rank for one in clients} - {-1})
    said = message(logs.STORE_UNREACHED, ranks=victims, address=address, port=port)
    evidence = [Evidence(kind="log", message=said, text=clients[0].event.text)]
    listening = list(events_with(job.logs, [LogCode.TORCH_SERVER_LISTENS]))
    for event in listening[:2]:
        heard = message(
            logs.STORE_LISTENS, address=str(event.values.get("address", "")),
            port=str(event.values.get("port", "")),
        )  # fmt: skip
        evidence.append(Evidence(kind="log", message=heard, text=event.text))
    missing = () if listening else (message(logs.MISSING_LISTENER, address=address),)
    return JobFinding(
        rule=RULE, cause=Cause.INIT_STORE_UNREACHABLE, confidence=Confidence.MEDIUM,
        victims=tuple(victims), evidence=tuple(evidence), missing=missing,
        next_actions=(message(logs.CHECK_STORE, address=address, port=port),),
    )  # fmt: skip


def _unreachable(job: JobEvidence, ranks: LogRanks, init: LogInit) -> JobFinding | None:
    """Ranks that found no path to a peer while they connected."""
    done = set(init.ranks(InitPhase.COMPLETE))
    failed = [
        one for one in connect_failures(job.logs, ranks)
        if one.is_without_path and one.rank not in done
    ]  # fmt: skip
    if not failed:
        return None
    peers = sorted({one.peer for one in failed} - {""})
    return JobFinding(
        rule=RULE, cause=Cause.PEER_UNREACHABLE, confidence=Confidence.MEDIUM,
        victims=tuple(sorted({one.rank for one in failed} - {-1})),
        evidence=tuple(_refused(job, ranks)),
        next_actions=(message(logs.OPEN_PORTS, peer=", ".join(peers)),),
    )  # fmt: skip
