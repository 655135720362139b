"""What gpu_harness.py has measured, beside what is predicted: a line a program, and a line a variant."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpu_harness import Harness

FAR = 0.25  # beyond which a cause is named
_FEWEST = 12  # iterations, of which the 6th from both ends are an interval of the median
_LAST = 20  # iterations of a replay, as many as of a program
_HOST = 0.1  # of an iteration: waiting for the host
SYSTEM = "hgx-h100-8"
RANKS = 2
VARIANTS_OF = {"The host decides": "graph", "is waited for at once": "async"}  # what follows a piece of advice


def compare(harness: Harness) -> None:
    """Write and print results.jsonl."""
    real = _real(harness)
    measured = _replayed(harness.out / "replay")
    kernels = {what: _kernels(harness.out, what) for what in ("kernels", "beside")}
    for name, found in kernels["kernels"].items():
        measured.setdefault(name, {}).update(found)
    files = sorted(harness.out.glob("*/*_comm.toml"))
    names = [one.parent.name for one in files]
    steps = [one.with_name(f"{one.parent.name}{suffix}.toml") for one in files for suffix in ("", "_comm", "_host")]
    predicted = _predicted(harness, [one for one in steps if one.exists()], "--from", str(harness.out / "curves"))
    bounds = _predicted(harness, [one for one in steps if one.exists()], "--system", SYSTEM, by="mpi")
    for name, found in kernels["beside"].items():
        measured.setdefault(name, {}).update({f"beside_{key}": ms for key, ms in found.items()})
    lines = [_line(harness, name, real, measured, predicted, bounds) for name in names if name in real]
    with ThreadPoolExecutor(8 if harness.device == "cuda" else 1) as pool:
        variants = pool.map(lambda name: _variant(harness, name, real), [name for name in real if ":" in name])
    lines += [line for line in variants if line]
    with (harness.out / "results.jsonl").open("w") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)


# --- real ------------------------------------------------------------------------------------------------------------


def _said(harness: Harness) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(harness.out.glob("said.*.jsonl")):
        for line in map(json.loads, path.read_text().splitlines()):
            found.setdefault(line["name"], []).append(line)
    return found


def _real(harness: Harness) -> dict[str, dict[str, Any]]:
    """By program or variant: its iteration in ms, that of the slower rank, with its interval."""
    found = {}
    for name, ranks in _said(harness).items():
        if len(ranks) < 2 or any("failed" in one for one in ranks):
            print(f"{name}: {[one.get('failed', '')[-300:] for one in ranks]}", flush=True)
            continue
        slower = sorted(max(pair) / 1e6 for pair in zip(*(one["iterations_ns"] for one in ranks), strict=True))
        found[name] = {"ms": statistics.median(slower), "low_ms": slower[7], "high_ms": slower[-8],
                       "flow_ms": ranks[0]["steps"] * max(one["flow_step_ns"] for one in ranks) / 1e6,
                       "profiled_ms": max((one["profiled_ns"] or 0) for one in ranks) / 1e6,
                       **_communicated([one.get("kernels_ns") or [] for one in ranks])}  # fmt: skip
    return found


def _communicated(ranks: Sequence[Sequence[Sequence[int]]]) -> dict[str, float]:
    """Of iterations of which only kernels were profiled: NCCL's, each as on the rank that came last, in ms."""
    if min(map(len, ranks), default=0) < _FEWEST or len({len(found) for rank in ranks for found in rank}) != 1:
        return {}
    own = sorted(sum(map(min, zip(*kernels, strict=True))) / 1e6 for kernels in zip(*ranks, strict=True))
    return {"kernels_ms": statistics.median(own), "kernels_low_ms": own[5], "kernels_high_ms": own[-6]}


def _exposed(harness: Harness, name: str, real_ms: float) -> dict[str, Any]:
    """Of the profile: computing, communication of the rank that came last, exposed, waiting for the host (ms), and the
    advice of `convert --exposed --program-time --overlap`."""
    from linkgauge.app.exposed import advice_text, beside_computing
    from linkgauge.apps.exposure import exposure_of
    from linkgauge.apps.traces import ranks_of_traces
    from linkgauge.errors import UsageError

    paths = [harness.out / name / f"prof.{rank}.json.gz" for rank in range(2)]
    try:
        found = exposure_of(ranks_of_traces(paths))
    except UsageError as error:
        return {"why_not": str(error)}
    overlap = harness.out / "overlap"
    advice = found.advice(real_ms * 1e6, beside_computing(overlap) if overlap.exists() else None)
    given = {"words": advice_text(advice), "promised": advice.promised, "low_ms": advice.low_ns / 1e6,
             "high_ms": advice.high_ns / 1e6, "variant": next((
                 variant for begin, variant in VARIANTS_OF.items() if begin in advice.words), "")}  # fmt: skip
    return {"communication_ms": found.own_ns / 1e6, "waited_ms": sum(one.waited_ns or 0.0 for one in found.kinds) / 1e6,
            "exposed_ms": found.exposed_ns / 1e6, "least_ms": found.least_ns / 1e6, "busy_ms": found.busy_ns / 1e6,
            "host_ms": found.idle_ns / 1e6, "advice": given,
            "kinds": [[one.what, one.count, round(one.ns / 1e6, 4)] for one in found.kinds][:6]}  # fmt: skip


# --- replayed and predicted -------------------------------------------------------------------------------------------


def _replayed(run: Path) -> dict[str, dict[str, float]]:
    """By step file: its iteration in ms, with the ends of the median's interval, and what of it is not computing."""
    from linkgauge.apps.catalog import asked
    from linkgauge.stats.step_times import step_times
    from linkgauge.store.run import load
    from linkgauge.view.results import Results

    if not run.exists():
        return {}
    loaded = load(run)
    times = step_times(loaded)
    found = {}
    for row in Results(loaded).rows:
        ranks = times.get(row.identity, [])
        moving = [one.total_ns - one.ns.get("compute", 0.0) for one in ranks]
        found[asked(row.case.app).file.name] = {
            "ms": row.median_ns / 1e6, "low_ms": row.interval_low_ns / 1e6, "high_ms": row.interval_high_ns / 1e6,
            "not_computing_ms": min(moving, default=0.0) / 1e6,
        }  # fmt: skip
    return found


def _kernels(out: Path, what: str) -> dict[str, dict[str, float]]:
    """Of replays of communication alone: the sum of NCCL's kernels, each as on the rank that came last."""
    result: dict[str, dict[str, float]] = {}
    from linkgauge.apps.catalog import parse
    from linkgauge.apps.program import amounts, program_of

    of_app: dict[str, dict[int, list[int]]] = {}
    for path in sorted((out / what).glob("*.jsonl")):
        for line in map(json.loads, path.read_text().splitlines()):
            for _, ns, device in line["kernels"]:
                of_app.setdefault(line["app"], {}).setdefault(device, []).append(ns)
    for name, devices in of_app.items():
        steps = out / name.removesuffix("_comm") / f"{name}.toml"
        program = program_of(parse(steps.read_text(), steps.name), {}, RANKS)
        each = [
            sum(one.count for kind, one in amounts(program, rank).items() if kind != "compute") for rank in range(RANKS)
        ]
        if len(devices) == RANKS and len(set(each)) == 1 and len(set(map(len, devices.values()))) == 1:
            ranks = [[found[at : at + each[0]] for at in range(len(found) % each[0], len(found), each[0])][-_LAST:]
                     for found in devices.values()]  # fmt: skip
            result[name] = _communicated(ranks)
    return result


def _predicted(harness: Harness, files: Sequence[Path], *source: str, by: str = "") -> dict[str, dict[str, Any]]:
    """By step file, what `predict` says; one that it cannot predict is left out."""
    if not files:
        return {}
    how = ["--transport", by or harness.messages, *(() if by else ("--collectives", harness.collectives))]
    words = ["predict", ",".join(map(str, files)), *source, *how, "--ranks", str(RANKS), "--json"]
    text = harness.linkgauge(*words, log="predict")
    rows = json.loads(text) if text.startswith("[") else []
    return {str(row["app"]).partition(" ")[0]: row for row in rows if row.get("predicted_ns")}


def _ms(row: Mapping[str, Any] | None) -> dict[str, Any]:
    if not row:
        return {}
    found = {"ms": row["predicted_ns"] / 1e6}
    for key in ("low_ns", "high_ns"):
        if row.get(key):
            found[key.replace("_ns", "_ms")] = row[key] / 1e6
    return found


def _line(
    harness: Harness, name: str, real: Mapping[str, dict[str, Any]], replayed: Mapping[str, dict[str, float]],
    predicted: Mapping[str, dict[str, Any]], bounds: Mapping[str, dict[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    exposed = _exposed(harness, name, real[name]["ms"])
    kinds = {"": "gpu_time", "_host": "with_host_time", "_comm": "communication_alone"}
    line: dict[str, Any] = {"program": name, "real": {**real[name], **exposed}}
    line["replayed"] = {words: replayed.get(name + suffix, {}) for suffix, words in kinds.items()}
    line["predicted"] = {words: _ms(predicted.get(name + suffix)) for suffix, words in kinds.items()}
    _without_launch(line, replayed.get("empty", {}))
    line["advised"] = _advised(exposed.get("advice", {}), name, real)
    line["bound"] = {words: _ms(bounds.get(name + suffix)) for suffix, words in kinds.items()}
    again, by_curves = line["replayed"], line["predicted"]
    alone, host = "communication_alone", "with_host_time"
    own = real[name].get("kernels_ms") or exposed.get("communication_ms")
    line["ratios"] = ratios = {
        "communication, replayed / real": _over(again[alone].get("kernels_ms"), own),
        "communication, wall of the replay / real": _over(again[alone].get("own_ms"), own),
        "communication, predicted / replayed": _over(by_curves[alone].get("ms"), again[alone].get("ms")),
        "iteration, predicted / replayed": _over(by_curves["gpu_time"].get("ms"), again["gpu_time"].get("ms")),
        "iteration with host, replayed / real": _over(again[host].get("ms"), real[name]["ms"]),
        "iteration with host, predicted / real": _over(by_curves[host].get("ms"), real[name]["ms"]),
    }
    far = [what for what, ratio in ratios.items() if ratio and not 1 / (1 + FAR) <= ratio <= 1 + FAR]
    line["beyond_25_percent"] = far
    line["causes"] = _causes(line, exposed) if far else []
    line["host_decides"] = exposed.get("host_ms", 0.0) > exposed.get("busy_ms", 0.0) + exposed.get("exposed_ms", 0.0)
    return line


def _without_launch(line: dict[str, Any], empty: Mapping[str, float]) -> None:
    """A replay's communication: without the launch and the wait of an iteration, which an empty one has too."""
    alone = line["replayed"]["communication_alone"]
    if alone and empty:
        alone["own_ms"] = alone["ms"] - empty["ms"]
        line["replayed"]["empty"] = empty


def _advised(advice: Mapping[str, Any], name: str, real: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The change that the advice is for, where it promises a gain and the change was measured: the gain in ms,
    predicted (the middle of its interval) and real."""
    after = real.get(f"{name}:{advice.get('variant')}")
    if not advice.get("promised") or after is None:
        return {}
    predicted, gained = (advice["low_ms"] + advice["high_ms"]) / 2, real[name]["ms"] - after["ms"]
    return {"variant": advice["variant"], "predicted_ms": predicted, "low_ms": advice["low_ms"],
            "high_ms": advice["high_ms"], "real_ms": gained, "ratio": _over(predicted, gained)}  # fmt: skip


def _over(one: float | None, other: float | None) -> float | None:
    return round(one / other, 4) if one and other else None


def _causes(line: Mapping[str, Any], exposed: Mapping[str, Any]) -> list[str]:
    """What the numbers say; the others are to be found."""
    real, found = line["real"], []
    if exposed.get("host_ms", 0.0) > _HOST * real["ms"]:
        found.append(f"the GPU waits {exposed['host_ms']:.3g} ms for its host")
    if real["profiled_ms"] > 1.1 * real["ms"]:
        found.append(f"profiled it takes {real['profiled_ms'] / real['ms']:.2f} times as long")
    if exposed.get("waited_ms", 0.0) > _HOST * exposed.get("communication_ms", 0.0):
        found.append(f"ranks wait {exposed['waited_ms']:.3g} ms for each other")
    alone = line["replayed"]["communication_alone"].get("ms")
    if alone and exposed.get("communication_ms", 0.0) > 1.1 * alone:
        found.append(f"collectives take {exposed['communication_ms'] / alone:.2f} times as long beside computing")
    return found


# --- variants --------------------------------------------------------------------------------------------------------


def _variant(harness: Harness, what: str, real: Mapping[str, dict[str, Any]]) -> dict[str, Any] | None:
    """A variant's real gain, in ms of an iteration and as a share of it, beside the predicted one."""
    name, _, variant = what.partition(":")
    if name not in real:
        return None
    kind, _, value = variant.partition("=")
    gains = {}
    for suffix in ("", "_host"):
        steps = harness.out / name / f"{name}{suffix}.toml"
        if steps.exists():
            gains["with_host_time" if suffix else "gpu_time"] = _gain(harness, steps, kind, value)
    before, after = real[name], real[what]
    return {
        "variant": what, "real": {"before": before, "after": after, "gain_ms": before["ms"] - after["ms"],
                                  "gain": 1 - after["ms"] / before["ms"]}, "predicted": gains,
    }  # fmt: skip


def _gain(harness: Harness, steps: Path, kind: str, value: str) -> dict[str, Any]:
    curves = ("--from", str(harness.out / "curves"))
    target = steps.with_name(f"{steps.stem}_{kind}.toml")
    before = _one(_predicted(harness, [steps], *curves))
    if kind == "async":
        after = _one(_predicted(harness, [harness.out / "loop" / steps.name.replace("at_once", "loop")], *curves))
    elif kind == "bucket":
        after = _one(_predicted(harness, [steps], *curves, "--bucket", f"{value}MiB"))
    elif kind == "bf16":
        after = _one(_predicted(harness, [steps], *curves, "--faster", "collective=2"))
    elif kind == "ctas":
        after = _one(_predicted(harness, [steps], "--from", str(harness.out / "capped")))
    elif kind == "keep":
        _changed(target, steps, _gathered_once)
        after = _one(_predicted(harness, [target], *curves))
    else:  # a graph: no launches to wait for
        after = _one(_predicted(harness, [steps.with_name(steps.name.replace("_host", ""))], *curves))
    if not before or not after:
        return {}
    return {"before_ms": before / 1e6, "after_ms": after / 1e6, "gain_ms": (before - after) / 1e6,
            "gain": 1 - after / before}  # fmt: skip


def _one(found: Mapping[str, dict[str, Any]]) -> float:
    return next((float(row["predicted_ns"]) for row in found.values()), 0.0)


def _changed(target: Path, source: Path, change: Callable[[Sequence[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    from linkgauge.apps.step_file import as_toml
    from linkgauge.model.shape import parsed_toml

    document = parsed_toml(source.read_text(), source.name)
    document["step"] = change(document["step"])
    target.write_text(as_toml(document))


def _gathered_once(steps: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the allgathers of the backward pass: of those between two first reduce-scatters the first half stays."""
    if any("when" in one for one in steps):
        return [{**one, "step": _gathered_once(one["step"])} if "when" in one else one for one in steps]
    whole = _unrolled(steps)
    total = sum(one.get("collective") == "reduce_scatter" for one in whole)
    layers = total // 2  # an iteration is two steps
    kept, gathered, scattered = [], 0, 0
    for one in whole:
        if one.get("collective") == "reduce_scatter":
            scattered += 1
            if scattered % layers == 0:
                gathered = 0
        if one.get("collective") == "allgather":
            gathered += 1
            if gathered > layers:
                continue
        kept.append(one)
    return kept


def _unrolled(steps: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for one in steps:
        found += _unrolled(one["step"]) * int(one["repeat"]) if "repeat" in one else [one]
    return found
