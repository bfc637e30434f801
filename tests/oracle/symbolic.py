"""Turns byte counts measured at several shapes into formulas in b, s, h, A, K, f, a ... and checks them."""
from fractions import Fraction

import families

FREE_HEAD_DIM = {name for name, (_, free) in families.FAMILIES.items() if free}
MULTI_QUERY = {"falcon", "gpt_bigcode"}
FULL_HEADS = {"gpt2", "gpt_neo", "gpt_neo-local", "gptj", "gpt_neox", "gpt_neox-serial", "opt", "bloom", "falcon-rw",
              "mpt"}


def symbols(family, shape):
    c = dict(shape)
    if family not in FREE_HEAD_DIM:
        c["d"] = c["h"] // c["a"]
    c["f"] = {"bloom": 4 * c["h"], "mpt": 2 * c["h"]}.get(family, c["f"])
    c["kv"] = 1 if family in MULTI_QUERY else c["a"] if family in FULL_HEADS else c["kv"]
    c.update(T=c["b"] * c["s"], A=c["a"] * c["d"], K=c["kv"] * c["d"], k=2, E=5,
             r=c["d"] // 2 if family == "gptj" else c["d"] // 4)
    return c


def shapes_for(family):
    names = ["small", "other", "third"] + (["wide"] if family in FREE_HEAD_DIM else [])
    return [families.SHAPES[n] for n in names], families.SHAPES["check"]


def up(n, m):
    return -(-n // m) * m


# order matters where sizes coincide: the first that fits every shape is taken
MONOMIALS = {
    "": lambda c: 1,
    "T": lambda c: c["T"],
    "Th": lambda c: c["T"] * c["h"],
    "TA": lambda c: c["T"] * c["A"],
    "TK": lambda c: c["T"] * c["K"],
    "Tf": lambda c: c["T"] * c["f"],
    "T(A+2K)": lambda c: c["T"] * (c["A"] + 2 * c["K"]),
    "T(A+K)": lambda c: c["T"] * (c["A"] + c["K"]),
    "T(A+2d)": lambda c: c["T"] * (c["A"] + 2 * c["d"]),
    "Ta": lambda c: c["T"] * c["a"],
    "Tkv": lambda c: c["T"] * c["kv"],
    "Td": lambda c: c["T"] * c["d"],
    "sd": lambda c: c["s"] * c["d"],
    "sr": lambda c: c["s"] * c["r"],
    "s": lambda c: c["s"],
    "sh": lambda c: c["s"] * c["h"],
    "as": lambda c: c["s"] * c["a"],
    "abs2": lambda c: c["a"] * c["T"] * c["s"],
    "as2": lambda c: c["a"] * c["s"] * c["s"],
    "bs2": lambda c: c["T"] * c["s"],
    "s2": lambda c: c["s"] * c["s"],
    "ab*up32(s)": lambda c: c["a"] * c["b"] * up(c["s"], 32),
    "abs*up16(s)": lambda c: c["a"] * c["T"] * up(c["s"], 16),
    "h": lambda c: c["h"],
    "TV": lambda c: c["T"] * c["v"],
    "TE": lambda c: c["T"] * c["E"],
    "E": lambda c: c["E"],
    "hA": lambda c: c["h"] * c["A"],
    "hK": lambda c: c["h"] * c["K"],
    "h(A+2K)": lambda c: c["h"] * (c["A"] + 2 * c["K"]),
    "h(A+2d)": lambda c: c["h"] * (c["A"] + 2 * c["d"]),
    "hf": lambda c: c["h"] * c["f"],
    "hV": lambda c: c["h"] * c["v"],
    "hE": lambda c: c["h"] * c["E"],
    "hfE": lambda c: c["h"] * c["f"] * c["E"],
    "A": lambda c: c["A"],
    "K": lambda c: c["K"],
    "f": lambda c: c["f"],
    "d": lambda c: c["d"],
    "a": lambda c: c["a"],
}
WEIGHTLIKE = ("hA", "hK", "h(A+2K)", "h(A+2d)", "hf", "hV", "hE", "hfE")


def fit(byte_counts, environments, heads_first=False, partial_rotary=False):
    """(coefficient, monomial) with coefficient * monomial == bytes at every shape, or None."""
    names = list(MONOMIALS)
    if heads_first:
        names = ["TA", "TK"] + names
    if partial_rotary:
        names = ["sr"] + names
    for name in names:
        ratio = {Fraction(n, MONOMIALS[name](c)) for n, c in zip(byte_counts, environments)}
        if len(ratio) == 1:
            factor = ratio.pop()
            if factor.denominator == 1 and factor <= 64:
                return int(factor), name
    return None


def evaluate(terms, c):
    return sum(factor * MONOMIALS[name](c) for name, factor in terms.items())


def text(terms):
    """terms {monomial: coefficient} as one line, the T terms gathered."""
    per_token = [(n[1:], k) for n, k in terms.items() if n.startswith("T")]
    rest = [(n, k) for n, k in terms.items() if not n.startswith("T")]
    parts = []
    if per_token:
        parts.append("T*(" + " + ".join(f"{k}{n}" if n else str(k) for n, k in per_token) + ")")
    parts += [f"{k}*{n}" if n else str(k) for n, k in rest]
    return " + ".join(parts) or "0"
