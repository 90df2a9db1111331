"""The table of ratios by kind of processor in docs/results/performance.md: a comparison writes the cells that it measured."""

import re

CASES = ["small", "gpt2-b1", "gpt2-b4", "llama"]
HEADER = "| kind of CPU | dtype | GPT-2 small | 124M, B=1 | B=4 | Llama 100M |"


def kind_of(output):
    """The kind of processor that the first lines of a run name; limited to AVX2, another one."""
    found = re.search(r"\(shipped for (\w+)", output)
    return found[1] if found else "unknown"


def ratio_of(result):
    """The fastest PyTorch's step time over Echelon's."""
    speeds = [side["ratios"][0]["speed"] for side in result["sides"].values() if side.get("ratios")]
    return f"{min(speeds):.2f}x" if speeds else None


def updated(page, kind, results):
    """The page with the ratios in the rows of that kind, which are added where they are missing. Raises ValueError if the page has no table."""
    if HEADER not in page:
        raise ValueError(f"there is no table with the header '{HEADER}'")
    before, rest = page.split(HEADER + "\n", 1)
    lines = rest.split("\n")
    end = next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))
    rows = {}
    for line in lines[1:end]:
        name, dtype, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        rows[name, dtype] = cells
    for result in results:
        if result["case"] in CASES and ratio_of(result):
            cells = rows.setdefault((kind, result["dtype"]), [""] * len(CASES))
            cells[CASES.index(result["case"])] = ratio_of(result)
    table = [f"| {name} | {dtype} | {' | '.join(cells)} |" for (name, dtype), cells in sorted(rows.items())]
    return before + "\n".join([HEADER, lines[0], *table, *lines[end:]])
