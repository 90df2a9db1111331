"""Where two trajectories differ, in words."""

from trajectory import COMPARED, NOTED

ABSENT = "absent"
TIMED = {"seconds"}  # of an answer: what the command itself took


def first_difference(base, new, tolerance=0.0):
    """A clause that names the first step, tensor or number that differs, or ''. `tolerance`: relative, of answers."""
    for side, trajectory in (("base", base), ("working tree", new)):
        if "error" in trajectory:
            return f"{side} fails: {trajectory['error']}"
    if "answer" in base:
        return difference_of_answers(base["answer"], new["answer"], tolerance)
    for before, after in zip(base["steps"], new["steps"]):
        for key in COMPARED:
            if before.get(key) != after.get(key):
                return f"{key} of step {before['step']} is {after.get(key)}, was {before.get(key)}"
    if len(base["steps"]) != len(new["steps"]):
        return f"{len(new['steps'])} lines of steps, were {len(base['steps'])}"
    if base["tensors"] != new["tensors"]:
        names = sorted(base["tensors"].keys() | new["tensors"].keys())
        other = [name for name in names if base["tensors"].get(name) != new["tensors"].get(name)]
        return f"{len(other)} of {len(names)} tensors, first {other[0]}"
    if base.get("text") != new.get("text"):
        return f"generated text is {new.get('text')!r}, was {base.get('text')!r}"
    return ""


def note(base, new):
    """Memory and traffic that changed while the bits did not."""
    for before, after in zip(base.get("steps", []), new.get("steps", [])):
        for key in NOTED:
            if before.get(key) != after.get(key):
                return f"{key} is {after.get(key)}, was {before.get(key)}"
    return ""


def difference_of_answers(base, new, tolerance):
    before, after = dict(leaves(base)), dict(leaves(new))
    names = [*before, *(name for name in after if name not in before)]
    changed = {name: change(before.get(name, ABSENT), after.get(name, ABSENT)) for name in names}
    other = [name for name in names if changed[name] > tolerance]
    if not other:
        return ""
    largest = max(changed[name] for name in other)
    size = "" if largest == float("inf") else f", largest change {largest:.2g}"
    first = f"{other[0]} is {after.get(other[0], ABSENT)}, was {before.get(other[0], ABSENT)}"
    return f"{len(other)} of {len(names)} values{size}, first {first}"


def leaves(value, name=""):
    """Every number and text of a JSON value, with its path."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield name, value
        return
    for key, item in items:
        if key not in TIMED:
            yield from leaves(item, f"{name}.{key}" if name else str(key))


def change(before, after):
    """0 if equal, the relative change of numbers, infinity otherwise."""
    if before == after:
        return 0.0
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (before, after)):
        return float("inf")
    return abs(after - before) / max(abs(before), abs(after))
