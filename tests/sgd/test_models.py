"""Models that people have, against a loop over examples in double precision; the table in the docs is made of them."""

from __future__ import annotations

import copy
import os
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils.data import DataLoader

from noisette import sgd
from noisette.sgd.noise.perturbation import full_name

os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytestmark = pytest.mark.slow

EXAMPLES = 4
PAGE = Path(__file__).parents[2] / "docs" / "private-sgd.md"


def numbers(*shape):
    return lambda: torch.randn(shape)


def words(length=5, below=11):
    return lambda: torch.randint(1, below, (length,))


class Wired(nn.Module):
    """Layers, and how they are called."""

    def __init__(self, forward, **layers):
        super().__init__()
        self.wiring = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, **given):
        return self.wiring(self, **given)


def attention(self, x):
    causal = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
    made, weights = self.attention(x, x, x, attn_mask=causal)
    return made + weights.sum(-1, keepdim=True) * x


def masked_by_example(self, x):
    mask = (x @ x.mT).repeat_interleave(2, 0)
    return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


def with_padding(self, x):
    return self.attention(x, x, x, key_padding_mask=x[..., 0] > 0.8, average_attn_weights=False)[0]


def cells(self, x):
    state = x.new_zeros(len(x), 4), x.new_zeros(len(x), 4)
    for time in range(x.shape[1]):
        state = self.cell(x[:, time], state)
    return state[0]


def gated(self, x):
    state = None
    for time in range(x.shape[1]):
        state = self.cell(x[:, time], state)
    return state


class Positions(nn.Module):
    """A token of its own and a table of positions, as in vision transformers, with dropout."""

    def __init__(self):
        super().__init__()
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, 4)), nn.Parameter(torch.randn(1, 4, 4))
        self.inner, self.dropout, self.scale = nn.Linear(4, 4), nn.Dropout(0.0), nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        joined = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.scale * self.inner(self.dropout(joined))


class Scaled(nn.Module):
    """A scalar parameter."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return torch.tanh(self.scale * x)


def tied():
    model = Wired(lambda self, x: self.out(torch.tanh(self.table(x))), table=nn.Embedding(11, 4), out=nn.Linear(4, 11))
    model.out.weight = model.table.weight
    return model


def without_a_state(self, x):
    return self.cell(x[:, 1], self.cell(x[:, 0]))


def borrowed(self, x):
    return torch.tanh(nn.functional.linear(x, self.inner.weight)) @ self.inner.weight


def offsets(self, x):
    """A table of the differences of places goes through layers, as in the second Swin transformer."""
    places = torch.arange(x.shape[1], dtype=x.dtype)
    across = torch.stack(torch.meshgrid(places, places, indexing="ij"), -1)
    return (self.net(across[None]).mean(2) * x).sum(1)


def tokens(self, x):
    """Tokens lie along the first axis, as before experts; a row is as wide as there are examples."""
    return self.net(x.flatten(0, 1)).unflatten(0, (len(x), -1))


def relative(self, x):
    places = torch.arange(x.shape[1])
    return (self.bias((places[:, None] - places).abs())[..., 0] @ self.inner(x)) * x


def time_first(self, x):
    return self.encoder(x.transpose(0, 1))[-1]


def encoder(**options):
    return nn.TransformerEncoderLayer(8, 2, dim_feedforward=8, batch_first=True, **options)


def transformers_model(kind, config, **settings):
    def build():
        transformers = pytest.importorskip("transformers")
        made = getattr(transformers, config)(**settings)
        made._attn_implementation = "eager"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # some models still script a function
            model = getattr(transformers, kind)(made)
        for layer in model.modules():
            if isinstance(layer, nn.Dropout):
                layer.p = 0.0
        return model

    return build


class Block(nn.Module):
    """A basic block as torchvision writes it: ReLU in place, and += onto what a layer returned."""

    def __init__(self, entering, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(entering, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.downsample = None
        if stride > 1 or entering != width:
            self.downsample = nn.Sequential(nn.Conv2d(entering, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        made = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        made += identity
        return self.relu(made)


def resnet(width=4):
    """Return ResNet-18 with torchvision's layers in their order, narrower (it has 64 channels)."""
    stem = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    blocks, entering = [], width
    for stage in range(4):
        for place in range(2):
            blocks.append(Block(entering, width << stage, 2 if stage and not place else 1))
            entering = width << stage
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(entering, 2)]
    return sgd.without_batch_norm(nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), *blocks, *head))


WIDTH = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
TEXT = WIDTH | {"vocab_size": 11, "max_position_embeddings": 8}


def wav2vec():
    """Return a model that hears. Its mask is used where pretraining covers sounds, which nothing here does."""
    made = transformers_model(
        "Wav2Vec2ForSequenceClassification",
        "Wav2Vec2Config",
        **WIDTH,
        vocab_size=11,
        conv_dim=[4, 4],
        conv_stride=[5, 2],
        conv_kernel=[10, 3],
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        classifier_proj_size=4,
        apply_spec_augment=False,
        layerdrop=0.0,
        hidden_dropout=0.0,
        activation_dropout=0.0,
        attention_dropout=0.0,
        feat_proj_dropout=0.0,
    )()
    made.wav2vec2.masked_spec_embed.requires_grad_(False)
    return made


# name -> (model, an example)
MODELS = {
    "nn.MultiheadAttention, causal mask": (
        lambda: Wired(attention, attention=nn.MultiheadAttention(4, 2, batch_first=True)),
        {"x": numbers(4, 4)},
    ),
    "nn.MultiheadAttention, a mask for each example": (
        lambda: Wired(masked_by_example, attention=nn.MultiheadAttention(4, 2, batch_first=True)),
        {"x": numbers(3, 4)},
    ),
    "nn.MultiheadAttention, padding": (
        lambda: Wired(with_padding, attention=nn.MultiheadAttention(4, 2, batch_first=True, add_bias_kv=True)),
        {"x": numbers(3, 4)},
    ),
    "nn.TransformerEncoderLayer": (lambda: encoder(dropout=0.0), {"src": numbers(5, 8)}),
    "nn.TransformerEncoder, time first": (
        lambda: Wired(
            time_first,
            encoder=nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 4, 0.0), 1, enable_nested_tensor=False),
        ),
        {"x": numbers(5, 4)},
    ),
    "nn.TransformerDecoderLayer": (
        lambda: nn.TransformerDecoderLayer(8, 2, 8, 0.0, batch_first=True),
        {"tgt": numbers(3, 8), "memory": numbers(5, 8)},
    ),
    "nn.Bilinear": (
        lambda: Wired(lambda self, x, y: self.both(x, y), both=nn.Bilinear(3, 2, 4)),
        {"x": numbers(3), "y": numbers(2)},
    ),
    "nn.LSTMCell": (lambda: Wired(cells, cell=nn.LSTMCell(3, 4)), {"x": numbers(3, 3)}),
    "nn.GRUCell": (lambda: Wired(gated, cell=nn.GRUCell(3, 4)), {"x": numbers(3, 3)}),
    "nn.RNNCell, its first state left out": (
        lambda: Wired(without_a_state, cell=nn.RNNCell(3, 4)),
        {"x": numbers(2, 3)},
    ),
    "nn.LSTM with projections, `with_open_recurrence`": (
        lambda: sgd.with_open_recurrence(
            Wired(lambda self, x: self.net(x)[0], net=nn.LSTM(3, 4, 2, proj_size=2, batch_first=True))
        ),
        {"x": numbers(4, 3)},
    ),
    "a scalar parameter": (lambda: nn.Sequential(nn.Linear(3, 3), Scaled()), {"input": numbers(3)}),
    "token, positions and scale in one module": (
        lambda: Wired(lambda self, x: self.inner(self.first(x)), first=Positions(), inner=nn.Linear(4, 2)),
        {"x": numbers(3, 4)},
    ),
    "parametrizations.weight_norm": (
        lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 2)),
        {"input": numbers(3)},
    ),
    "parametrizations.orthogonal": (
        lambda: nn.Sequential(parametrizations.orthogonal(nn.Linear(3, 3)), nn.Tanh()),
        {"input": numbers(3)},
    ),
    "tied embedding": (tied, {"x": words()}),
    "a weight used past its layer": (
        lambda: Wired(borrowed, inner=nn.Linear(3, 4, bias=False)),
        {"x": numbers(3)},
    ),
    "a table without an axis of examples": (
        lambda: Wired(relative, bias=nn.Embedding(5, 1), inner=nn.Linear(3, 3)),
        {"x": numbers(5, 3)},
    ),
    "a table through layers that change it in place": (
        lambda: Wired(offsets, net=nn.Sequential(nn.Linear(2, 4), nn.ReLU(inplace=True), nn.Linear(4, 3))),
        {"x": numbers(3, 3)},
    ),
    "tokens of all examples along the first axis": (
        lambda: Wired(tokens, net=nn.Sequential(nn.Linear(3, EXAMPLES), nn.Tanh(), nn.Linear(EXAMPLES, 2))),
        {"x": numbers(5, 3)},
    ),
    "ResNet-18 (torchvision's layers), `without_batch_norm`": (resnet, {"input": numbers(3, 64, 64)}),
    "Hugging Face BERT": (
        transformers_model("BertForMaskedLM", "BertConfig", **TEXT),
        {"input_ids": words(), "attention_mask": lambda: torch.tensor([1, 1, 1, 1, 0])},
    ),
    "Hugging Face GPT-2": (
        transformers_model(
            "GPT2LMHeadModel", "GPT2Config", vocab_size=11, n_positions=8, n_embd=8, n_layer=1, n_head=2
        ),
        {"input_ids": words()},
    ),
    "Hugging Face Llama": (
        transformers_model("LlamaForCausalLM", "LlamaConfig", **TEXT, num_key_value_heads=1),
        {"input_ids": words(), "attention_mask": lambda: torch.tensor([1, 1, 1, 1, 0])},
    ),
    "Hugging Face ViT": (
        transformers_model("ViTForImageClassification", "ViTConfig", **WIDTH, image_size=8, patch_size=4),
        {"pixel_values": numbers(3, 8, 8)},
    ),
    "Hugging Face DeBERTa": (
        transformers_model(
            "DebertaV2ForSequenceClassification",
            "DebertaV2Config",
            **TEXT,
            relative_attention=True,
            pos_att_type=["p2c", "c2p"],
            pooler_hidden_size=8,
        ),
        {"input_ids": words()},
    ),
    "Hugging Face Mixtral": (
        transformers_model(
            "MixtralForCausalLM",
            "MixtralConfig",
            **TEXT,
            num_key_value_heads=1,
            num_local_experts=EXAMPLES,
            experts_implementation="eager",
        ),
        {"input_ids": words()},
    ),
    "Hugging Face T5": (
        transformers_model(
            "T5ForConditionalGeneration",
            "T5Config",
            vocab_size=11,
            d_model=8,
            d_kv=4,
            d_ff=8,
            num_layers=1,
            num_heads=2,
            decoder_start_token_id=0,
            dropout_rate=0.0,
        ),
        {"input_ids": words(5), "decoder_input_ids": words(4)},
    ),
}


MODELS |= {
    "Hugging Face RoBERTa": (
        transformers_model("RobertaForMaskedLM", "RobertaConfig", **TEXT | {"max_position_embeddings": 10}),
        {"input_ids": words(), "attention_mask": lambda: torch.tensor([1, 1, 1, 1, 0])},
    ),
    "Hugging Face DistilBERT": (
        transformers_model(
            "DistilBertForSequenceClassification",
            "DistilBertConfig",
            vocab_size=11,
            dim=8,
            n_layers=1,
            n_heads=2,
            hidden_dim=8,
            max_position_embeddings=8,
        ),
        {"input_ids": words()},
    ),
    "Hugging Face Mistral": (
        transformers_model(
            "MistralForCausalLM", "MistralConfig", **TEXT, num_key_value_heads=1, head_dim=4, sliding_window=3
        ),
        {"input_ids": words()},
    ),
    "Hugging Face Qwen2": (
        transformers_model("Qwen2ForCausalLM", "Qwen2Config", **TEXT, num_key_value_heads=1),
        {"input_ids": words()},
    ),
    "Hugging Face Gemma": (
        transformers_model("GemmaForCausalLM", "GemmaConfig", **TEXT, num_key_value_heads=1, head_dim=4),
        {"input_ids": words()},
    ),
    "Hugging Face OPT": (
        transformers_model(
            "OPTForCausalLM",
            "OPTConfig",
            vocab_size=11,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            ffn_dim=8,
            max_position_embeddings=8,
            word_embed_proj_dim=8,
            dropout=0.0,
        ),
        {"input_ids": words()},
    ),
    "Hugging Face BART, which wants a text to end": (
        transformers_model(
            "BartForSequenceClassification",
            "BartConfig",
            vocab_size=11,
            d_model=8,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=8,
            decoder_ffn_dim=8,
            max_position_embeddings=8,
            dropout=0.0,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=2,
            forced_eos_token_id=2,
        ),
        {"input_ids": lambda: torch.cat([torch.randint(3, 11, (4,)), torch.tensor([2])])},
    ),
    "Hugging Face Swin": (
        transformers_model(
            "SwinForImageClassification",
            "SwinConfig",
            image_size=8,
            patch_size=2,
            embed_dim=4,
            depths=[2],
            num_heads=[2],
            window_size=2,
            drop_path_rate=0.0,
        ),
        {"pixel_values": numbers(3, 8, 8)},
    ),
    "Hugging Face ConvNeXt": (
        transformers_model(
            "ConvNextForImageClassification",
            "ConvNextConfig",
            hidden_sizes=[4, 4, 8, 8],
            depths=[1, 1, 1, 1],
        ),
        {"pixel_values": numbers(3, 32, 32)},
    ),
    "Hugging Face CLIP, its text": (
        transformers_model(
            "CLIPTextModelWithProjection", "CLIPTextConfig", **TEXT, projection_dim=4, bos_token_id=9, eos_token_id=10
        ),
        {"input_ids": words()},
    ),
    "Hugging Face Wav2Vec2, its `masked_spec_embed` frozen": (wav2vec, {"input_values": numbers(400)}),
    "Hugging Face Mamba": (
        transformers_model(
            "MambaForCausalLM",
            "MambaConfig",
            vocab_size=11,
            hidden_size=8,
            state_size=4,
            num_hidden_layers=1,
            conv_kernel=3,
            time_step_rank=2,
        ),
        {"input_ids": words()},
    ),
    "Hugging Face Mamba2": (
        transformers_model(
            "Mamba2ForCausalLM",
            "Mamba2Config",
            vocab_size=11,
            hidden_size=8,
            state_size=4,
            num_hidden_layers=1,
            conv_kernel=3,
            num_heads=4,
            head_dim=4,
            n_groups=2,
            chunk_size=4,
        ),
        {"input_ids": words()},
    ),
}


class Double:
    """torch, in which single precision is double precision."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@pytest.fixture
def double(name, monkeypatch):
    """Let Mamba2 compute in double precision: inside it makes single precision of any, and sums that in any order."""
    if "Mamba2" in name:
        from transformers.models.mamba2 import modeling_mamba2

        monkeypatch.setattr(modeling_mamba2, "torch", Double())
        monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


def answer(made):
    """Return the output that a loss would use."""
    if isinstance(made, torch.Tensor):
        return made
    return made["logits"] if "logits" in made else made[0]


def losses(model, batch):
    return torch.sin(answer(model(**batch)).flatten(1)).cumsum(1).square().sum(1)


def start(name, **options):
    torch.manual_seed(7)
    build, example = MODELS[name]
    model = build().double()
    items = [{key: draw() for key, draw in example.items()} for _ in range(EXAMPLES)]
    items = [{k: v.double() if v.is_floating_point() else v for k, v in item.items()} for item in items]
    plain = copy.deepcopy(model)
    private = sgd.make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        DataLoader(items, batch_size=2),
        **{"target": (8.0, 1e-5), "epochs": 2, "rng": 1} | options,
    )
    return private, plain.train(), items


def row(name, recorder):
    """Return a model's row of the table in the docs."""
    apart = sorted({type(recorder.layers[layer]).__name__ for layer in recorder.apart})
    apart = ["the whole model" if name == "Wired" else f"`{name}`" for name in apart]
    return f"| {name} | {', '.join(apart) or 'none'} |"


def table():
    """Return the table in the docs: what is tested below, and which modules compute their examples apart."""
    rows = []
    for name in MODELS:
        private, _, items = start(name)
        losses(private.model, private.loader.collate(items)).mean().backward()
        rows.append(row(name, private.optimizer.recorder))
    return "\n".join(["| model | modules whose examples are computed apart |", "| --- | --- |", *rows])


CASES = [pytest.param(name, marks=[pytest.mark.long] * ("Face" in name or "ResNet" in name)) for name in MODELS]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("double")
def test_gradients_are_those_of_one_example_at_a_time(name):
    private, plain, items = start(name)
    private.optimizer.zero_grad()
    batch = private.loader.collate(items)
    losses(private.model, batch).mean().backward()
    assert row(name, private.optimizer.recorder) in PAGE.read_text(encoding="utf-8"), "python tests/sgd/test_models.py"
    parts = private.optimizer.recorder.parts()
    each = {full_name(layer, own): rows for layer, part in parts.items() for own, rows in part.each().items()}
    squares = sum(part.squares() for part in parts.values())
    weights = torch.linspace(0.5, 2.0, EXAMPLES, dtype=torch.float64)
    totals = {full_name(layer, own): v for layer, part in parts.items() for own, v in part.total(weights).items()}
    assert each.keys() == {key for key, value in plain.named_parameters() if value.requires_grad}
    expected = []
    for item in items:
        plain.zero_grad()
        losses(plain, private.loader.collate([item])).sum().backward()  # each example's own, not divided
        expected.append({key: plain.get_parameter(key).grad.clone() for key in each})
    size = max(value.abs().max() for one in expected for value in one.values())
    for key in each:
        rows = torch.stack([one[key] for one in expected])
        torch.testing.assert_close(each[key], rows, rtol=1e-9, atol=1e-11 * size)
        torch.testing.assert_close(totals[key], torch.tensordot(weights, rows, 1), rtol=1e-9, atol=1e-11 * size)
    truth = torch.stack([sum(value.square().sum() for value in one.values()) for one in expected])
    torch.testing.assert_close(squares, truth, rtol=1e-9, atol=0.0)
    assert (squares >= truth * (1 - 1e-12)).all()


@pytest.mark.parametrize("name", CASES)
def test_a_batch_without_examples_adds_nothing_but_noise(name):
    private, _, items = start(name)
    batch = {key: value[:0] for key, value in private.loader.collate(items).items()}
    losses(private.model, batch).sum().backward()
    for part in private.optimizer.recorder.parts().values():
        assert part.squares().shape == (0,)
        assert not any(value.any() for value in part.total(torch.zeros(0, dtype=torch.float64)).values())


def scripted(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(model)


HOOKS = ["old weight norm", "old spectral norm", "pruned"]


def hooked(kind):
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    if kind == "prune":
        prune.random_unstructured(model[0], "weight", 0.5)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # they are deprecated, and still used
            getattr(nn.utils, kind)(model[0])
    return model


def unhooked(kind):
    def remedy(model):
        if kind == "prune":
            mask = model[0].weight_mask
            prune.remove(model[0], "weight")
            parametrize.register_parametrization(model[0], "weight", Masked(mask))
        else:
            getattr(nn.utils, f"remove_{kind}")(model[0])
            parametrizations.weight_norm(model[0])
        return model

    return remedy


class Masked(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.mask = mask

    def forward(self, weight):
        return weight * self.mask


def nested(self, input):
    rows = torch.nested.as_nested_tensor(list(input[:, None]), layout=torch.jagged)
    return torch.nested.to_padded_tensor(self.inner(rows), 0.0)


def looking_up(*, sparse):
    return Wired(lambda self, input: self.e((input > 0).long()).sum(1), e=nn.Embedding(2, 3, sparse=sparse))


@pytest.mark.parametrize(
    ("model", "words", "remedy"),
    [
        (lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), "without_batch_norm", sgd.without_batch_norm),
        (
            lambda: Wired(lambda self, input: self.r(input[:, None])[0], r=nn.LSTM(3, 3, batch_first=True)),
            "with_open_recurrence",
            sgd.with_open_recurrence,
        ),
        (lambda: nn.DataParallel(nn.Linear(3, 3)), "give model.module", lambda model: model.module),
        (lambda: torch.compile(nn.Linear(3, 3), backend="eager"), "_orig_mod", lambda model: model._orig_mod),
        (lambda: scripted(nn.Linear(3, 3)), "the model from before", lambda model: nn.Linear(3, 3)),
        (lambda: looking_up(sparse=True), "sparse=False", lambda model: looking_up(sparse=False)),
        (lambda: hooked("weight_norm"), "'0'.*remove_weight_norm.*parametrizations", unhooked("weight_norm")),
        (
            lambda: hooked("spectral_norm"),
            "'0'.*remove_spectral_norm.*parametrizations.weight",
            unhooked("spectral_norm"),
        ),
        (lambda: hooked("prune"), "'0'.*prune.remove.*multiplies with the mask", unhooked("prune")),
        (
            lambda: Wired(nested, inner=nn.Linear(3, 3)),
            "'inner' was given a nested tensor.*Pad the examples",
            lambda model: Wired(lambda self, input: self.inner(input), inner=model.inner),
        ),
        (
            lambda: Wired(lambda self, input: (input @ self.w).abs(), w=nn.Parameter(torch.ones(3, 3) * 1j)),
            "'w' is complex.*torch.complex",
            lambda model: Wired(
                lambda self, input: (torch.complex(input, 0 * input) @ torch.complex(self.real, self.imag)).abs(),
                real=nn.Parameter(torch.ones(3, 3)),
                imag=nn.Parameter(torch.ones(3, 3)),
            ),
        ),
    ],
    ids=["batch norm", "recurrence", "data parallel", "compiled", "scripted", "sparse", *HOOKS, "nested", "complex"],
)
def test_a_refused_model_has_a_remedy_that_works(model, words, remedy):
    data = DataLoader([{"input": torch.randn(3)} for _ in range(8)], batch_size=2)

    def private(model):
        return sgd.make_private(
            model, torch.optim.SGD(model.parameters(), lr=0.1), data, target=(8.0, 1e-5), epochs=1, rng=1
        )

    refused = model()
    with pytest.raises(ValueError, match=words):
        private(refused)
    made, optimizer, loader = private(remedy(refused))
    for batch in loader:
        optimizer.zero_grad()
        losses(made, batch).mean().backward()
        optimizer.step()
    assert optimizer.steps == 4


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition("<!-- models: begin -->\n")
    after = rest.partition("<!-- models: end -->")[2]
    PAGE.write_text(f"{before}<!-- models: begin -->\n{table()}\n<!-- models: end -->{after}", encoding="utf-8")
