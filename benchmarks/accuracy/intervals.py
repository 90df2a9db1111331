"""Intervals of predictions of software that nothing was fitted to: every group of runs as predicted without it. The constants are fitted to the other groups, which
count equally, and the switches of a profile that it alone uses are left out, as by benchmarks/accuracy/fit. For benchmarks/accuracy/run."""
import importlib.machinery, importlib.util, math, os
import numpy
import interval_rules


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
        ratios[group] = -numpy.log1p(bare)
        commons.append(common)
    table_of_groups(ratios, line, head, percent)
    table_of_rules(ratios, line, head, percent)
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


def left_out(ratios, rule, coverage=interval_rules.COVERAGE):
    """Of every group: its name, its logarithms, and the interval from the other groups alone."""
    for group, its in ratios.items():
        yield group, its, *rule([each for other, each in ratios.items() if other != group], coverage)


def is_inside(its, low, high):
    return (low <= its) & (its <= high)


def table_of_groups(ratios, line, head, percent):
    head("group, left out whole", "runs", "error", "bias", "interval from the other groups", "median inside", "runs inside")
    rule = interval_rules.median_distance
    for group, its, low, high in left_out(ratios, rule):
        errors = numpy.exp(-its) - 1
        line(group, len(its), percent(numpy.abs(errors).mean()), f"{100 * errors.mean():+.1f} %", f"{math.exp(low):.3f} to {math.exp(high):.3f}",
             "yes" if is_inside(numpy.median(its), low, high) else "no", percent(is_inside(its, low, high).mean()))
    print("\nInterval of a prediction (src/predict/software/interval.cpp): {:.3f} to {:.3f} of it.".format(*numpy.exp(rule(list(ratios.values())))))
    for coverage in (0.5, 0.6, 0.7, 0.8, 0.9):
        inside = numpy.concatenate([is_inside(its, low, high) for _, its, low, high in left_out(ratios, rule, coverage)])
        print(f"Of {percent(coverage)} intervals {percent(inside.mean())} of the runs are inside.")


def table_of_rules(ratios, line, head, percent):
    head("rule", "medians inside", "runs inside", "mean of groups", "median half-width", "mean interval score")
    for name, rule in interval_rules.RULES.items():
        groups = list(left_out(ratios, rule))
        inside = [is_inside(*each[1:]) for each in groups]
        medians = sum(is_inside(numpy.median(its), low, high) for _, its, low, high in groups)
        widths = [(math.exp(high) - math.exp(low)) / 2 for *_, low, high in groups]
        scores = [interval_rules.interval_score(*each[1:]) for each in groups]
        line(name, f"{medians} of {len(groups)}", percent(numpy.concatenate(inside).mean()), percent(numpy.mean([each.mean() for each in inside])),
             percent(numpy.median(widths)), f"{numpy.mean(scores):.3f}")
