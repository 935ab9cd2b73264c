"""The rows of the second table, with what each must reach.

Both workers read this file; it imports nothing, so it loads in either environment.
"""

from dataclasses import dataclass

BATCH = 64
RANK = 1
TRAINED = 10  # steps of the default settings before anything is timed
CALIBRATION = 512  # pictures that fix scales and statistics
# Our default settings, for the other package; our worker checks that they are.
TEMPERATURE, STEP_RADIUS, PROBE_RADIUS, PARTICLE_DIM = 0.005, 0.1, 2.0, 8


@dataclass(frozen=True)
class Network:
    """One network.

    Args:
        name: Short, for the command line.
        title: For tables.
        network: Which one of `networks`.
        parameters: Of the network.
        must: How many times faster than a forward pass a probe has to be; 0 where none is set.
        aim: The same, hoped for.
        training: Whether batch norm uses the statistics of the batch.
        reads: What is put in, pictures or words.
        searched: The tensors whose names begin so are searched; all, if nothing is said.
        left_out: And those whose names begin so are not.
        trained: Steps of the default settings before anything is timed.
    """

    name: str
    title: str
    network: str
    parameters: int
    must: float
    aim: float
    training: bool = False
    reads: str = "pictures"
    searched: str = ""
    left_out: str = "-"
    trained: int = TRAINED


NETWORKS = (
    Network("spiking-10", "spiking CNN, T = 10", "spiking-10", 29_826, 60, 150),
    Network("spiking-25", "spiking CNN, T = 25", "spiking-25", 29_826, 60, 150),
    Network("binary-5", "binary ResNet, 5 convolutions", "binary-5", 9_706, 6, 20),
    Network("binary-9", "binary ResNet, 9 convolutions", "binary-9", 19_050, 6, 20),
    Network("binary-5-train", "the same with 5, batch statistics", "binary-5", 9_706, 0, 0, True),
    Network("lenet", "LeNet-5, INT8", "lenet", 61_706, 50, 120),
    Network("separable", "depthwise-separable CNN, INT8", "separable", 22_474, 3, 8),
    Network("lstm-28", "LSTM, 28 time steps", "lstm-28", 24_714, 2.5, 4),
    Network("lstm-96", "LSTM, 96 time steps", "lstm-96", 19_594, 2.5, 4),
    Network("gru-28", "GRU, 28 time steps", "gru-28", 18_698, 2.5, 4),
    Network("gru-96", "GRU, 96 time steps", "gru-96", 14_858, 2.5, 4),
    Network("attention-argmax", "attention block, argmax", "attention-argmax", 37_770, 4, 8),
    Network("attention-softmax", "the same with softmax", "attention-softmax", 37_770, 2, 4),
    Network(
        "transformer",
        "the paper's transformer, all but the words",
        "transformer",
        4_188_546,
        3,
        6,
        reads="words",
        left_out="embedding",
        trained=1,
    ),
    Network(
        "transformer-words",
        "the paper's transformer, words in the batch",
        "transformer",
        4_188_546,
        15,
        30,
        reads="words",
        searched="embedding",
        trained=1,
    ),
)
BY_NAME = {row.name: row for row in NETWORKS}
