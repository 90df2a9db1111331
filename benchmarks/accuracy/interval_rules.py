"""Rules that make an interval of the logarithms of measured over predicted of groups, and a score of intervals. The first is in use. For intervals.py.

Errors are factors, so all work with logarithms. Most groups differ by little and some by much, whose switches the prediction lacks: a median and a median distance
from it say how far most are off, and one such group moves neither by much. What is outermost in 80 % of the weight is one run of one group instead."""
import statistics
import numpy

COVERAGE = 0.8


def z_of(coverage):
    return statistics.NormalDist().inv_cdf((1 + coverage) / 2)


def weighted(groups):
    """The sorted values, and weights of which every group has as much as another."""
    values = numpy.concatenate(groups)
    weights = numpy.concatenate([numpy.full(len(each), 1 / len(each) / len(groups)) for each in groups])
    order = numpy.argsort(values)
    return values[order], weights[order]


def quantiles(values, weights, at):
    return numpy.interp(at, numpy.cumsum(weights) - weights / 2, values)


def median_distance(groups, coverage=COVERAGE):
    values, weights = weighted(groups)
    center = quantiles(values, weights, 0.5)
    apart = numpy.abs(values - center)
    order = numpy.argsort(apart)
    half = z_of(coverage) / z_of(0.5) * quantiles(apart[order], weights[order], 0.5)
    return center - half, center + half


def quartiles(groups, coverage=COVERAGE):
    low, center, high = quantiles(*weighted(groups), (0.25, 0.5, 0.75))
    half = z_of(coverage) / z_of(0.5) * (high - low) / 2
    return center - half, center + half


def mean_and_deviation(groups, coverage=COVERAGE):
    values, weights = weighted(groups)
    mean = weights @ values
    half = z_of(coverage) * (weights @ (values - mean) ** 2) ** 0.5
    return mean - half, mean + half


def equal_tails(groups, coverage=COVERAGE):
    return tuple(quantiles(*weighted(groups), ((1 - coverage) / 2, (1 + coverage) / 2)))


def shortest(groups, coverage=COVERAGE):
    values, weights = weighted(groups)
    below = numpy.concatenate([[0], numpy.cumsum(weights)])
    last = numpy.searchsorted(below, below[:-1] + coverage - 1e-12) - 1  # that the interval from a value needs
    first = numpy.flatnonzero(last < len(values))
    best = first[numpy.argmin(values[last[first]] - values[first])]
    return values[best], values[last[best]]


def of_medians(groups, coverage=COVERAGE):
    return shortest([numpy.array([numpy.median(each)]) for each in groups], coverage)


def densest(groups, coverage=COVERAGE):
    """The shortest, of a sum of Gaussians with Silverman's width."""
    values, weights = weighted(groups)
    low, high = quantiles(values, weights, (0.25, 0.75))
    width = 0.9 * min((weights @ (values - weights @ values) ** 2) ** 0.5, (high - low) / 1.349) * (weights @ weights) ** 0.2
    grid, below = numpy.linspace(-1, 1.5, 2501), statistics.NormalDist().cdf
    sums = [sum(w * below((x - value) / width) for value, w in zip(values, weights)) for x in grid]
    at = numpy.linspace(0, 1 - coverage, 401)
    lows, highs = numpy.interp(at, sums, grid), numpy.interp(at + coverage, sums, grid)
    best = numpy.argmin(highs - lows)
    return lows[best], highs[best]


RULES = {"median and median distance": median_distance, "median and quartiles": quartiles, "mean and standard deviation": mean_and_deviation,
         "equal tails": equal_tails, "shortest": shortest, "shortest of medians": of_medians, "densest": densest}


def interval_score(its, low, high):
    """Width, and 2 / (1 - coverage) times the distance of what is outside (Gneiting and Raftery 2007, section 6.2): the less, the better."""
    return high - low + 2 / (1 - COVERAGE) * numpy.mean(numpy.maximum(0, numpy.maximum(low - its, its - high)))
