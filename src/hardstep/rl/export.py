"""A policy as a C header, for a microcontroller.

    binary   one bit per weight: its sign
    ternary  a second bit, whether the weight is there
    int8     int8_t and a scale for the weights and the biases of a layer
    others   float where a float holds every number exactly, else double

The header has the weights of `Policy.act` to the last bit, computes in double, from the first input
to the last, and needs nothing but math.h. What it guarantees, for finite observations in float32:

- A sum differs from NumPy's, which may add in another order, in its last bits at most; tanh is
  that of the C library. Sums of signs (behind binary activations, with binary or ternary weights)
  are exact.
- Actions are the same unless such a bit decides: between two outputs, about the sign of a hidden
  unit, or about the nearer of two values of an INT8 activation. Continuous actions agree up to it.

That asks for a double of 64 bits and a compiler that keeps to IEEE 754 (no -ffast-math).
"""

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill, indent

import numpy as np

import hardstep
from hardstep._checks import show
from hardstep._files import write_text
from hardstep.errors import ConfigError
from hardstep.nn import AbsMax, Binary, Ternary, TransformedLinear
from hardstep.rl.policies import Policy
from hardstep.rl.spaces import Array, Continuous, Discrete, MultiDiscrete, Space
from hardstep.rl.stacks import LEVELS, SMALLEST

WIDTH = 90  # of a line with numbers
BYTES = {"uint8_t": 1, "int8_t": 1, "float": 4, "double": 8}
ACTIVATIONS = {
    "relu": "for (i = 0; i < {num}; i++) hidden[i] = hidden[i] < 0 ? 0 : hidden[i];",
    "tanh": "for (i = 0; i < {num}; i++) hidden[i] = tanh(hidden[i]);",
    "binary": "for (i = 0; i < {num}; i++) hidden[i] = hidden[i] >= 0 ? 1 : -1;",
    "int8": f"""\
double scale = {SMALLEST};
for (i = 0; i < {{num}}; i++) if (fabs(hidden[i]) > scale) scale = fabs(hidden[i]);
scale /= {LEVELS};
for (i = 0; i < {{num}}; i++) hidden[i] = rint(hidden[i] / scale) * scale;""",
}
BIT = """\
static int {name}_bit(const uint8_t *bits, int place)
{{
    return bits[place / 8] >> place % 8 & 1;
}}

"""


@dataclass(frozen=True)
class Constant:
    """An array of the header."""

    kind: str  # in C
    name: str
    numbers: Array  # (n,)
    remark: str = ""

    @property
    def size(self) -> int:
        """Bytes."""
        return BYTES[self.kind] * self.numbers.size

    def write(self) -> str:
        """Its definition."""
        numbers = ", ".join(_write_number(self.kind, number) for number in self.numbers)
        remark = f"/* {self.remark} */\n" if self.remark else ""
        head = f"static const {self.kind} {self.name}[{self.numbers.size}] = {{"
        return f"{remark}{head}\n{indent(fill(numbers, WIDTH), '    ')}\n}};\n"


def to_c(policy: Policy, name: str = "policy") -> str:
    """The text of a C99 header that defines the function `<name>_act`.

        Discrete        static int  policy_act(const float *observation)
        MultiDiscrete   static void policy_act(const float *observation, int *action)
        Continuous      static void policy_act(const float *observation, float *action)

    Args:
        policy: Trained, on any device.
        name: What the names in the header begin with.

    Raises:
        ConfigError: There is no such header for this policy, or no such name in C.
    """
    _check(policy, name)
    constants: list[Constant] = []
    body = _normalize(policy, name, constants)
    body += _multiply(policy, name, constants)
    signature, choice = _choose(policy.space, name, constants)
    text = "\n".join([*body, choice])
    numbers = "\n".join(constant.write() for constant in constants)
    needs_math = re.search(r"\b(tanh|rint|fabs|HUGE_VAL)\b", numbers + text)
    headers = f"{'#include <math.h>' if needs_math else ''}\n#include <stdint.h>".strip()
    helper = BIT.format(name=name) if f"{name}_bit(" in text else ""
    guard = f"{name.upper()}_H"
    return (
        f"{_describe(policy, sum(constant.size for constant in constants))}"
        f"#ifndef {guard}\n#define {guard}\n\n{headers}\n\n{numbers}\n{helper}"
        f"{signature}\n{{\n{indent(text, '    ')}\n}}\n\n#endif\n"
    )


def write(path: Path | str, policy: Policy, name: str = "policy") -> None:
    """Write that header, whole or not at all.

    Raises:
        ConfigError: There is no such header for this policy, or no such name in C.
        DataError: The file cannot be written.
    """
    write_text(Path(path), to_c(policy, name))


def _check(policy: Policy, name: str) -> None:
    if not isinstance(policy, Policy):
        raise ConfigError(f"to_c takes a Policy, such as agent.policy, got {show(policy)}")
    plain = type(policy).forward is Policy.forward and type(policy).stack is Policy.stack
    if not plain or not all(isinstance(layer, TransformedLinear) for layer in policy.layers):
        raise ConfigError(
            f"to_c knows how a Policy computes, {type(policy).__name__} computes in its own way"
        )
    if len(policy.layers) > 1 and policy.activation not in ACTIVATIONS:
        raise ConfigError(
            f"to_c has the activations {', '.join(ACTIVATIONS)}, not {show(policy.activation)}"
        )
    if not isinstance(policy.space, Discrete | MultiDiscrete | Continuous):
        raise ConfigError(f"to_c knows no actions in {show(policy.space)}")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
        raise ConfigError(
            f"to_c: name must be letters, digits and _, and begin with a letter, got {show(name)}"
        )
    for key, tensor in policy.state_dict().items():
        if not bool(tensor.isfinite().all()):
            raise ConfigError(f"to_c: {key} of the policy has numbers that are not finite")


def _describe(policy: Policy, size: int) -> str:
    """The comment on top."""
    hidden = f"{policy.layers[0].out_features} hidden units ({policy.activation}) -> "
    shape = f"{policy.observations} observations -> {hidden if len(policy.layers) > 1 else ''}"
    return f"""\
/* A policy, written by hardstep {hardstep.__version__}.
 *
 * {shape}{policy.space.outputs} outputs, {policy.weights} weights
 * Constants: {size} bytes.
 */
"""


def _normalize(policy: Policy, name: str, constants: list[Constant]) -> list[str]:
    """What reads the observation."""
    num = policy.observations
    mean, scale = policy.normalizer()
    value = "observation[j]"
    if mean.any() or (scale != 1).any():
        remark = "taken from an observation, and what the rest is multiplied by"
        constants += [_exact(f"{name}_mean", mean, remark), _exact(f"{name}_scale", scale)]
        value = f"(observation[j] - (double){name}_mean[j]) * {name}_scale[j]"
    sizes = [f"input[{num}]"]
    if len(policy.layers) > 1:
        sizes.append(f"hidden[{policy.layers[0].out_features}]")
    sizes.append(f"output[{policy.space.outputs}]")
    return [
        f"double {', '.join(sizes)};",
        "int i, j;",
        f"for (j = 0; j < {num}; j++) input[j] = {value};",
    ]


def _multiply(policy: Policy, name: str, constants: list[Constant]) -> list[str]:
    """The layers, and the activation between them."""
    stack = policy.stack({key: value[None] for key, value in policy.named_parameters()})
    body, before = [], "input"
    for number, (layer, (weights, bias)) in enumerate(
        zip(policy.layers, stack.layers, strict=True)
    ):
        assert isinstance(layer, TransformedLinear)
        after = "output" if number == len(policy.layers) - 1 else "hidden"
        outputs, inputs = weights.shape[1:]
        term, start = _pack(layer, f"{name}_{after}", weights.ravel(), bias.ravel(), constants)
        term = term.format(name=name, index=f"i * {inputs} + j", value=f"{before}[j]")
        body.append(
            f"for (i = 0; i < {outputs}; i++) {{\n"
            "    double sum = 0;\n"
            f"    for (j = 0; j < {inputs}; j++) sum += {term};\n"
            f"    {after}[i] = sum + {start};\n"
            "}"
        )
        if after == "hidden":
            body.append(_activate(policy.activation, outputs))
            before = "hidden"
    return body


def _activate(activation: str, num: int) -> str:
    lines = ACTIVATIONS[activation].format(num=num)
    return f"{{\n{indent(lines, '    ')}\n}}" if lines.startswith("double") else lines


def _pack(
    layer: TransformedLinear, name: str, weights: Array, bias: Array, constants: list[Constant]
) -> tuple[str, str]:
    """Keep a layer; returns C for weight `{index}` times `{value}`, and for the bias of unit i."""
    transform = layer.transform
    if isinstance(transform, AbsMax):
        scales = [float(transform.scale(tensor)) for tensor in (layer.weight, layer.bias)]
        if all(map(_are_codes, (weights, bias), scales)):
            return _pack_codes(name, (weights, bias), scales, constants)
    if isinstance(transform, Binary | Ternary):
        remark = f"signs of {weights.size} weights, one bit each: 1 is +1, 0 is -1"
        constants.append(_bits(f"{name}_signs", weights >= 0, remark))
        term = f"({_bit(f'{name}_signs')} ? {{value}} : -{{value}})"
        size = float(np.abs(weights).max())
        if isinstance(transform, Ternary):
            constants.append(_bits(f"{name}_there", weights != 0, "0 where the weight is 0"))
            term = f"({_bit(f'{name}_there')} ? {term} : 0)"
        elif size != 1:
            term = f"{size!r} * {term}"
    else:
        constants.append(_exact(f"{name}_weights", weights))
        term = f"{name}_weights[{{index}}] * {{value}}"
    constants.append(_exact(f"{name}_bias", bias))
    return term, f"{name}_bias[i]"


def _pack_codes(
    name: str, layer: tuple[Array, Array], scales: list[float], constants: list[Constant]
) -> tuple[str, str]:
    remark = "weights and biases are INT8 numbers times these, in float"
    constants.append(_exact(f"{name}_steps", np.array(scales), remark))
    for what, numbers, scale in zip(("weights", "bias"), layer, scales, strict=True):
        constants.append(Constant("int8_t", f"{name}_{what}", np.rint(numbers / scale)))
    # The cast rounds as Python does where a machine computes with more digits than a float has.
    code = f"(double)(float)({name}_{{}}[{{}}] * {name}_steps[{{}}])"
    return f"{code.format('weights', '{index}', 0)} * {{value}}", code.format("bias", "i", 1)


def _are_codes(numbers: Array, scale: float) -> bool:
    """Whether INT8 codes times a scale in float give back the numbers to the last bit."""
    codes = np.rint(numbers / scale).astype(np.float32)
    fits = bool((np.abs(codes) < 128).all())
    return fits and bool(((codes * np.float32(scale)).astype(np.float64) == numbers).all())


def _choose(space: Space, name: str, constants: list[Constant]) -> tuple[str, str]:
    """The signature, and the action from the outputs."""
    head = f"{name}_act(const float *observation"
    if isinstance(space, Discrete):
        loop = f"for (i = 1; i < {space.num}; i++) if (output[i] > output[j]) j = i;"
        return f"static int {head})", f"j = 0;\n{loop}\nreturn j;"
    if isinstance(space, MultiDiscrete):
        lines, start = [], 0
        for number, num in enumerate(space.nums):
            end = start + num
            lines.append(
                f"for (i = j = {start}; i < {end}; i++) if (output[i] > output[j]) j = i;\n"
                f"action[{number}] = j{f' - {start}' if start else ''};"
            )
            start = end
        return f"static void {head}, int *action)", "\n".join(lines)
    low, high = np.asarray(space.low, float), np.asarray(space.high, float)
    lines = []
    if space.squash:
        constants.append(_exact(f"{name}_middle", (low + high) / 2, "of an action's bounds"))
        constants.append(_exact(f"{name}_reach", (high - low) / 2))
        lines.append(f"output[i] = {name}_middle[i] + tanh(output[i]) * {name}_reach[i];")
    for side, bounds, sign in (("low", low, "<"), ("high", high, ">")):
        constants.append(_exact(f"{name}_{side}", bounds))
        bound = f"{name}_{side}[i]"
        lines.append(f"if (output[i] {sign} {bound}) output[i] = {bound};")
    lines.append("action[i] = (float)output[i];")
    loop = indent("\n".join(lines), "    ")
    body = f"for (i = 0; i < {space.outputs}; i++) {{\n{loop}\n}}"
    return f"static void {head}, float *action)", body


def _bits(name: str, flags: Array, remark: str) -> Constant:
    return Constant("uint8_t", name, np.packbits(flags, bitorder="little"), remark)


def _bit(name: str) -> str:
    return f"{{name}}_bit({name}, {{index}})"


def _exact(name: str, numbers: Array, remark: str = "") -> Constant:
    """The numbers in the smaller type that has them all exactly."""
    with np.errstate(over="ignore", under="ignore"):
        same = numbers.astype(np.float32).astype(np.float64) == numbers
    return Constant("float" if same.all() else "double", name, numbers, remark)


def _write_number(kind: str, number: float) -> str:
    if kind == "uint8_t":
        return f"0x{int(number):02x}"
    if kind == "int8_t":
        return str(int(number))
    if np.isinf(number):
        return "HUGE_VAL" if number > 0 else "-HUGE_VAL"
    return f"{np.float32(number)!s}f" if kind == "float" else repr(float(number))
