"""The search for delays at a steady period across all cases of a node on its one clock.

A timer of 10 ms meets a case of 2 ms rarely and once. So the delayed samples of all cases are laid out on the clock
together, and the sum of their phases is asked for each frequency. Samples themselves come at a period, so only what
tells delayed samples of a case from its other ones counts: each case's samples add up to nothing. Then the cases must
agree on the phase, which one case's own rhythm (rounds of samples, a library's buffers) does not make them do.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt
import scipy

from linkgauge.findings.facts import Facts
from linkgauge.findings.measure import Measure
from linkgauge.stats.basics import Floats, median, robust_scale

_GRID_NS = 200_000.0  # of the clock, for the search
_WINDOW = 1 << 19  # entries of the grid: 105 s, after which a timer may have lost its phase
_MOST_WINDOWS = 4
_SHORTEST_NS, _LONGEST_NS = 1e6, 0.5e9
_BLOCK = 256  # frequencies over which the noise's power is taken to be even
_FENCE = 3.5  # deviations above its case's median: a delayed sample
_MOST_DELAYED = 0.35  # of a case's samples: more is no delay but a mode
_LEVEL = 1e-5
_AGREE = 10.0  # power of the cases' sum over the sum of their powers: about exp(-10) by chance
_TRIED = 8
_LEAST_DELAYS = 15
_NEAR_NS = 60_000.0  # beside a beat: how exactly a timer keeps it
_MULTIPLES = 20
_IN_A_BAND = 2
_SAME_PERIOD = 0.001
_LEAST_DELAY_NS, _BANDS = 2_000.0, 14  # up to 33 ms
_TIMERS = (250, 300, 1000, 1000 / 2, 1000 / 3, 3000 / 4, 2000 / 3)
"""Hz: what Linux is built with, and where some of a millisecond's turns do more than others."""


@dataclasses.dataclass(frozen=True)
class _Samples:
    """All samples of all cases, one entry each: case, middle and length in ns, delay in ns, weight (see above).

    `fence_ns`, `many` and `mean_ns`, one entry a case: the least delay that is seen in it, how many samples it has, and
    how long they last. `order` is that of their middles in time, `at` the search's entry of the clock of each in that
    order.
    """

    measures: tuple[Measure, ...]
    case: npt.NDArray[np.int64]
    middle_ns: Floats
    lasted_ns: Floats
    delay_ns: Floats
    fence_ns: Floats
    many: npt.NDArray[np.int64]
    mean_ns: Floats
    order: npt.NDArray[np.int64]
    at: npt.NDArray[np.int64]
    delayed: npt.NDArray[np.bool_]
    weight: Floats

    def of_height(self, least_ns: float) -> npt.NDArray[np.bool_]:
        """Which are delayed by `least_ns` to three times that: one disturbance has one height."""
        return (self.delay_ns >= least_ns) & (self.delay_ns < 3 * least_ns)


@dataclasses.dataclass(frozen=True)
class Beat:
    """A period of 1 / `frequency` ns, its phase in rad; how far cases agree on it; which samples it delays."""

    samples: _Samples
    frequency: float
    phase: float
    agreed: float
    on_beat: npt.NDArray[np.bool_]


def beats_of(facts: Facts) -> list[Beat]:
    """Return the beats on which samples of a node's cases are delayed, the surest first."""
    everything = _gather(facts)
    beats = []
    for band in range(_BANDS) if everything is not None else ():
        assert everything is not None
        hit = everything.of_height(_LEAST_DELAY_NS * 2**band)
        for _ in range(_IN_A_BAND):
            beat = _strongest(_weighed(everything, hit)) if hit.sum() >= _LEAST_DELAYS else None
            if beat is None:
                break
            slower = _slower(beat)
            beats += [beat] if slower is None else [beat, slower] if is_timer(beat) else [slower]
            hit = hit & ~beat.on_beat
    kept: list[Beat] = []
    for beat in sorted(beats, key=lambda beat: -beat.agreed):
        # What lies on a slower beat lies on a faster one as well: the slower says more.
        same = [other.on_beat for other in kept if other.frequency < 1.01 * beat.frequency]
        mine = int(beat.on_beat.sum())
        if any(_is_same(beat, other) for other in kept):
            continue
        if mine >= _LEAST_DELAYS and all((beat.on_beat & other).sum() <= 0.5 * mine for other in same):
            kept.append(beat)
    others = [beat for beat in kept if not is_timer(beat)]
    return others or kept[:1]  # what the kernel always does is no news beside others


def _strongest(samples: _Samples) -> Beat | None:
    best: tuple[float, float] | None = None
    for frequency in _candidates(samples):
        agreed = _agreement(_phasors(samples, frequency))
        if agreed >= _AGREE and (best is None or agreed > best[0]):
            best = (agreed, frequency)
    if best is None:
        return None
    agreed, frequency = best
    phase = float(np.angle(_phasors(samples, frequency).sum()))
    turn = 2 * math.pi * frequency * (samples.middle_ns - samples.middle_ns.min()) - phase
    reach = np.minimum(math.pi / 3, 2 * math.pi * frequency * (samples.lasted_ns / 2 + _NEAR_NS))
    return Beat(samples, frequency, phase, agreed, samples.delayed & (np.abs(np.angle(np.exp(1j * turn))) < reach))


def _slower(beat: Beat) -> Beat | None:
    """Return the slower beat inside a beat: its every so many-th turn, where far more delays lie than on the others."""
    samples = beat.samples
    at = samples.middle_ns[beat.on_beat] - samples.middle_ns.min()
    turns = np.round(at * beat.frequency - beat.phase / (2 * math.pi)).astype(np.int64)
    best: tuple[float, int, int] | None = None
    for part in range(2, _MULTIPLES + 1):
        if beat.frequency / part < 1 / _LONGEST_NS:
            break
        counts = np.bincount(turns % part, minlength=part)
        most = int(np.argmax(counts))
        chance = math.log(part) + _log_tail(int(counts[most]), turns.size, 1 / part)
        # A beat of ten turns is one of twenty as well: the lower number, unless the higher is far surer.
        if chance < math.log(_LEVEL) and (best is None or chance < 1.2 * best[0]):
            best = (chance, part, most)
    if best is None:
        return None
    _, part, most = best
    chosen = np.zeros_like(beat.on_beat)
    chosen[np.flatnonzero(beat.on_beat)[turns % part == most]] = True
    agreed = beat.agreed * chosen.sum() / beat.on_beat.sum()
    return Beat(samples, beat.frequency / part, (beat.phase + 2 * math.pi * most) / part, agreed, chosen)


def _is_same(beat: Beat, kept: Beat) -> bool:
    """Whether a beat is one that is kept: its period, or a part of that, which its own second delays may look like.

    Of the kernel's timer other things may take every so many-th turn.
    """
    times = beat.frequency / kept.frequency
    whole = round(times) == 1 or (round(times) > 1 and not is_timer(kept))
    return whole and abs(times / round(times) - 1) < _SAME_PERIOD


def _log_tail(least: int, count: int, share: float) -> float:
    """Return the logarithm of a bound of the chance that `least` or more of `count` fall into a `share`.

    The first term of the binomial sum times a geometric series above all others; a chance itself would be 0 beyond a
    few hundred, and chances of 0 cannot be compared.
    """
    if least <= count * share:
        return 0.0
    first = (
        scipy.special.gammaln(count + 1) - scipy.special.gammaln(least + 1) - scipy.special.gammaln(count - least + 1)
        + least * math.log(share) + (count - least) * math.log1p(-share)
    )  # fmt: skip
    series = (least + 1) * (1 - share) / (least + 1 - (count + 1) * share)
    return min(0.0, float(first) + math.log(series))


def _gather(facts: Facts) -> _Samples | None:
    """Return the samples of all cases that have delayed ones; without a weight yet."""
    parts: list[tuple[Measure, Floats, Floats, Floats, float]] = []
    for measure in facts.measures:
        for series in facts.headlines(measure):
            lasted = series.lasted_ns
            if lasted.size < 10:
                continue
            center = median(lasted)
            fence = _FENCE * max(robust_scale(lasted), 0.002 * center)
            delay = np.where(lasted > center + fence, lasted - center, 0.0)
            if 0 < (delay > 0).mean() <= _MOST_DELAYED:
                parts.append((measure, series.starts_ns + lasted / 2, lasted, delay, fence))
    if not parts:
        return None
    case = np.repeat(np.arange(len(parts)), [part[1].size for part in parts])
    middle, lasted, delay = (np.concatenate([part[k] for part in parts]) for k in (1, 2, 3))
    fences = np.array([part[4] for part in parts])
    many = np.bincount(case)
    mean = np.bincount(case, weights=lasted) / many
    order = np.argsort(middle)
    at = ((middle[order] - middle.min()) / _GRID_NS).astype(np.int64)
    none = np.zeros(case.size)
    return _Samples(
        tuple(part[0] for part in parts), case, middle, lasted, delay, fences, many, mean, order, at, delay > 0, none
    )


def is_timer(beat: Beat) -> bool:
    """Whether a beat is that of Linux's timer, or of some of its turns."""
    return is_near_timer(beat.frequency * 1e9, 1e-4)


def is_near_timer(hertz: float, apart: float) -> bool:
    """Whether a rate is that of Linux's timer or of some of its turns, but for a share `apart`."""
    return any(abs(hertz / timer - 1) < apart for timer in _TIMERS)


def _weighed(samples: _Samples, hit: npt.NDArray[np.bool_]) -> _Samples:
    """Return the samples with weights for the delays `hit`: what a case has many of anyway counts less.

    A case's weights are those of a sign of a rate that grows with its samples' length over its own rate of delays.
    """
    hits = np.bincount(samples.case, weights=hit)
    rare = np.sqrt(samples.mean_ns * samples.many / (hits + 1))
    weight = (hit - (hits / samples.many)[samples.case]) * rare[samples.case]
    return dataclasses.replace(samples, delayed=hit, weight=weight)


def _candidates(samples: _Samples) -> list[float]:
    """Return frequencies (1/ns) whose power chance among all frequencies does not reach, the strongest first."""
    at, weight = samples.at, samples.weight[samples.order]
    of_window = np.bincount(at // _WINDOW, weights=np.square(weight))
    windows = np.argsort(-of_window, kind="stable")[:_MOST_WINDOWS]  # where there is most to see
    length = _WINDOW if of_window.size > 1 else 1 << max(12, int(at[-1]).bit_length())
    power = np.zeros(length // 2 + 1)
    used = 0
    for window in windows.tolist():
        if of_window[window] > 0:
            mine = slice(*np.searchsorted(at, [window * _WINDOW, (window + 1) * _WINDOW]))
            grid = np.bincount(at[mine] % length, weights=weight[mine], minlength=length)
            power += np.square(np.abs(np.fft.rfft(grid))) / of_window[window]
            used += 1
    frequency = np.arange(power.size) / (length * _GRID_NS)
    able = (frequency >= 1 / _LONGEST_NS) & (frequency <= 1 / _SHORTEST_NS)
    # One window's limit, and none has a lower: what stays below needs no function of scipy, nor its import.
    if not used or not (power[able] > math.log(able.sum() / _LEVEL)).any():
        return []
    # Delays that come in bursts have more power at low frequencies: what is common around a frequency is no peak.
    blocks = power[: power.size // _BLOCK * _BLOCK].reshape(-1, _BLOCK)
    usual = np.median(blocks, axis=1) / scipy.special.gammaincinv(used, 0.5) if blocks.size else np.ones(1)
    level = np.repeat(np.maximum(1.0, usual), _BLOCK)
    power = power / np.concatenate([level, np.full(max(0, power.size - level.size), level[-1])])[: power.size]
    limit = float(scipy.special.gammainccinv(used, _LEVEL / able.sum()))
    peaks = np.flatnonzero(able & (power > limit))
    strongest = peaks[np.argsort(-power[peaks])][:_TRIED]
    return [_refined(samples, frequency[peak], 1 / (length * _GRID_NS)) for peak in strongest]


def _refined(samples: _Samples, frequency: float, step: float) -> float:
    """Return the frequency of most power near one of the search's grid, as fine as the whole run allows."""
    span = float(samples.middle_ns.max() - samples.middle_ns.min())
    tried = frequency + np.linspace(-1, 1, min(129, 2 * math.ceil(4 * span * step) + 1)) * step
    return float(max(tried, key=lambda f: abs(complex(_phasors(samples, f).sum()))))


def _phasors(samples: _Samples, frequency: float) -> npt.NDArray[np.complex128]:
    """Return each case's sum of phases at a frequency. A long sample's delay may lie anywhere in it: it counts less."""
    turn = 2 * math.pi * frequency
    value = (
        samples.weight
        * np.sinc(frequency * samples.lasted_ns)
        * np.exp(1j * ((turn * (samples.middle_ns - samples.middle_ns.min())) % (2 * math.pi)))
    )
    count = len(samples.measures)
    real, imaginary = (np.bincount(samples.case, weights=part, minlength=count) for part in (value.real, value.imag))
    return np.asarray(real + 1j * imaginary)


def _agreement(phasors: npt.NDArray[np.complex128]) -> float:
    """Return the power of the cases' sum over the sum of their powers: 1 by chance, their number where all agree."""
    apart = float(np.square(np.abs(phasors)).sum())
    return float(abs(phasors.sum()) ** 2 / apart) if apart > 0 else 0.0


def whose(beat: Beat) -> int | None:
    """Return the device without which cases show nothing of the beat, None where all show it.

    Only cases that can show it say anything: their samples are shorter than the period, and scatter less than by it.
    """
    samples, phasors = beat.samples, _phasors(beat.samples, beat.frequency)
    towards = np.conj(phasors.sum()) / max(1e-300, abs(phasors.sum()))
    along = (phasors * towards).real
    seen = samples.fence_ns < float(np.median(samples.delay_ns[beat.on_beat]))
    shown = samples.lasted_ns * np.square(np.sinc(beat.frequency * samples.lasted_ns)) * seen[samples.case]
    exposed = np.bincount(samples.case, weights=shown, minlength=along.size)
    devices = sorted({device for measure in samples.measures for device in measure.devices})
    found: list[tuple[float, int]] = []
    for device in devices:
        mine = np.array([device in measure.devices for measure in samples.measures])
        if not mine.any() or mine.all():
            continue
        rate_with, rate_without = (along[m].sum() / max(1e-300, exposed[m].sum()) for m in (mine, ~mine))
        expected = rate_with * exposed[~mine].sum()
        chance = math.sqrt(float(np.square(np.abs(phasors[~mine])).sum()))
        if expected > 4 * chance and rate_without < 0.3 * rate_with:
            found.append((rate_without / rate_with, device))
    return min(found)[1] if found else None
