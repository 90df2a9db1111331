"""Intervals of predictions of software that nothing was fitted to: every group of runs as predicted without it. The constants are fitted to the other groups, which
count equally, and the switches of a profile that it alone uses are left out, as by benchmarks/accuracy/fit. For benchmarks/accuracy/run."""
import importlib.machinery, importlib.util, os
import numpy

COVERAGE = 0.8


def load_fit():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fit")
    spec = importlib.util.spec_from_loader("fit", importlib.machinery.SourceFileLoader("fit", path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def show(echelon, folder, line, head, percent):
    fit = load_fit()
    rows, host = fit.rows_of(folder), {}  # the host's seconds are of the table of operators alone
    runs = fit.linearised(echelon, rows, host)
    plain = fit.linearised(echelon, rows, host, fit.without_switches(echelon, rows, host))
    ratios, commons = {}, []
    for group, _, bare, common in fit.left_out(runs, plain):
        ratios[group] = 1 / (1 + bare)
        commons.append(common)
    table(ratios, line, head, percent)
    every = numpy.ones(len(runs.groups), bool)
    print_spreads(fit, runs, numpy.log(commons), runs.fit_common(every))


def print_spreads(fit, runs, commons, common):
    """How uncertain a share is: the common one by the jackknife over groups, and generations around it."""
    of_common = numpy.sqrt((len(commons) - 1) * commons.var(axis=0))
    own = [runs.fit_generation(runs.generations == generation, common)[0] for generation in dict.fromkeys(runs.generations)]
    among = numpy.sqrt((numpy.log(numpy.array(own) / common) ** 2).mean(axis=0))
    both = numpy.sqrt(of_common**2 + among**2)
    for name, *values in zip(fit.NAMES, of_common, among, both):
        print("{}: {:.3f} by leaving out groups, {:.3f} among generations, together {:.3f}".format(name, *values))


def interval_of(groups):
    """Factors of a predicted time: the quantiles of measured over predicted, each group weighted as a whole."""
    values = numpy.concatenate(list(groups.values()))
    weights = numpy.concatenate([numpy.full(len(each), 1 / len(each)) for each in groups.values()])
    order = numpy.argsort(values)
    at = (numpy.cumsum(weights[order]) - weights[order] / 2) / weights.sum()
    return tuple(numpy.interp(((1 - COVERAGE) / 2, (1 + COVERAGE) / 2), at, values[order]))


def table(ratios, line, head, percent):
    head("group, left out whole", "runs", "error", "bias", "interval from the other groups", "median inside", "runs inside")
    hits, medians, widths = [], [], []
    for group, its in ratios.items():
        low, high = interval_of({other: each for other, each in ratios.items() if other != group})
        inside = (its >= low) & (its <= high)
        median = low <= numpy.median(its) <= high
        hits += list(inside)
        medians.append(median)
        widths.append((high - low) / 2)
        line(group, len(its), percent(numpy.abs(1 / its - 1).mean()), f"{100 * (1 / its - 1).mean():+.1f} %", f"{low:.2f} to {high:.2f}", "yes" if median else "no",
             percent(inside.mean()))
    line(f"**{sum(medians)} of {len(medians)}**", len(hits), percent(numpy.mean([numpy.abs(1 / each - 1).mean() for each in ratios.values()])), "",
         f"median half-width {percent(numpy.median(widths))}", "", percent(numpy.mean(hits)))
    low, high = interval_of(ratios)
    print(f"\nInterval of a prediction (src/predict/software/interval.cpp): {low:.3f} to {high:.3f} of it.")
