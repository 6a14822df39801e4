"""Tiny models with random weights, made in a moment and without a network: for tests, the demo, benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    ByT5Tokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
    T5ForConditionalGeneration,
)

from pipeline.models.libraries import quiet_libraries


def make_tiny_retriever(
    folder: Path,
    *,
    seed: int = 0,
    d_model: int = 64,
    layers: int = 2,
    dropout: float = 0.0,
    texts: Sequence[str] = (),
) -> Path:
    """Write a tiny retriever into `folder` (made if need be) and return it; the same arguments give the same weights.

    With the defaults: 107,000 parameters, 430 kB. Of `texts` the most frequent words are a token each; without any,
    tokens are bytes.
    """
    tokenizer: PreTrainedTokenizerBase = ByT5Tokenizer()
    if texts:
        marks = {"pad_token": "<pad>", "eos_token": "</s>"}
        pieces = _byte_tokenizer([*marks.values()], texts)
        tokenizer = _wrapped(pieces, marks, padding_side="right", max_length=512)
    config = T5Config(
        vocab_size=len(tokenizer) if texts else 384,
        d_model=d_model,
        d_kv=d_model // 4,
        d_ff=2 * d_model,
        num_layers=layers,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        is_encoder_decoder=False,
        use_cache=False,
        dropout_rate=dropout,
        pad_token_id=0,
        eos_token_id=1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = T5EncoderModel(config)
    folder.mkdir(parents=True, exist_ok=True)
    with quiet_libraries():
        encoder.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


TinyKind = Literal["encoder", "seq2seq", "causal", "classifier"]
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""ChatML, which Qwen and many others have."""
# With transformers' 0.02 the logits of so small a model are flat, and LoRA cannot move them.
_SPREAD = 0.3
_WORDS = 1000
"""Tokens at most: bytes, words, and the pieces that words are put together from."""


def make_tiny(kind: TinyKind, folder: Path, *, seed: int = 0) -> Path:
    """Write a tiny model of a kind, with its own function's defaults, into `folder` and return it."""
    return _MAKERS[kind](folder, seed)


def make_tiny_causal(
    folder: Path,
    *,
    chat_template: bool = True,
    seed: int = 0,
    hidden: int = 64,
    layers: int = 2,
    max_length: int = 1024,
    texts: Sequence[str] = (),
) -> Path:
    """Write a tiny causal language model (Llama's shape) with its tokenizer into `folder` and return it.

    The same arguments give the same weights. With the defaults: 91,000 parameters, 370 kB.

    Args:
        folder: made if need be.
        chat_template: whether the tokenizer has one (`CHAT_TEMPLATE`).
        seed: decides the weights.
        hidden: the width; a multiple of 4.
        layers: of the decoder.
        max_length: tokens that the model takes. Where there are no `texts`, they are bytes.
        texts: whose words are a token each, the most frequent ones first: prompts are shorter, and learned sooner.
    """
    marks = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "pad_token": "<|pad|>"}
    tokenizer = _byte_tokenizer([*marks.values(), "<|im_start|>"], texts)
    fast = _wrapped(tokenizer, marks, padding_side="left", max_length=max_length)
    if chat_template:
        fast.chat_template = CHAT_TEMPLATE
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
        initializer_range=_SPREAD,
        pad_token_id=fast.pad_token_id,
        bos_token_id=fast.bos_token_id,
        eos_token_id=fast.eos_token_id,
    )
    return _write(folder, lambda: LlamaForCausalLM(config), fast, seed)


def make_tiny_seq2seq(
    folder: Path, *, seed: int = 0, d_model: int = 64, layers: int = 2, dropout: float = 0.0
) -> Path:
    """Write a tiny ByT5 (the shape of ReProver's tactic generator) with its tokenizer into `folder` and return it.

    The same arguments give the same weights. With the defaults: 222,000 parameters, 890 kB.
    """
    config = T5Config(  # it takes fields that every configuration has
        vocab_size=384,
        d_model=d_model,
        d_kv=d_model // 4,
        d_ff=2 * d_model,
        num_layers=layers,
        num_decoder_layers=layers,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        # As ByT5's: transformers takes it for "do not scale what the decoder gives", and ties all the same.
        tie_word_embeddings=False,
        dropout_rate=dropout,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    return _write(folder, lambda: T5ForConditionalGeneration(config), ByT5Tokenizer(), seed)


def make_tiny_classifier(
    folder: Path, *, seed: int = 0, hidden: int = 64, layers: int = 2, max_length: int = 512
) -> Path:
    """Write a tiny BERT with a regression head (one number a text) and its tokenizer into `folder` and return it.

    The same arguments give the same weights. With the defaults: 121,000 parameters, 490 kB.

    Args:
        folder: made if need be.
        seed: decides the weights.
        hidden: the width; a multiple of 4.
        layers: of the encoder.
        max_length: tokens that the model takes: bytes, and one mark at either end.
    """
    marks = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = _byte_tokenizer(list(marks.values()))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(mark, tokenizer.token_to_id(mark)) for mark in ("[CLS]", "[SEP]")],
    )
    fast = _wrapped(tokenizer, marks, padding_side="right", max_length=max_length)
    # BERT's kinds of token are for pairs of texts.
    fast.model_input_names = ["input_ids", "attention_mask"]
    config = BertConfig(  # it takes fields that every configuration has
        vocab_size=len(fast),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        max_position_embeddings=max_length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=_SPREAD,
        num_labels=1,
        problem_type="regression",
        pad_token_id=fast.pad_token_id,
    )
    return _write(folder, lambda: BertForSequenceClassification(config), fast, seed)


_MAKERS: dict[TinyKind, Callable[[Path, int], Path]] = {
    "encoder": lambda folder, seed: make_tiny_retriever(folder, seed=seed),
    "seq2seq": lambda folder, seed: make_tiny_seq2seq(folder, seed=seed),
    "causal": lambda folder, seed: make_tiny_causal(folder, seed=seed),
    "classifier": lambda folder, seed: make_tiny_classifier(folder, seed=seed),
}


def _byte_tokenizer(marks: list[str], texts: Sequence[str] = ()) -> Tokenizer:
    """Return a tokenizer with a token for each byte and each of `marks`, which comes back to the very text.

    And for the words of `texts`, each with the space before it.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={byte: number for number, byte in enumerate(alphabet)}, merges=[]))
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = bytes_only
    if texts:
        words = pre_tokenizers.Split(Regex(r" ?\w+| ?[^\s\w]|\s"), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, bytes_only])
        trainer = trainers.BpeTrainer(vocab_size=_WORDS, initial_alphabet=alphabet, show_progress=False)
        tokenizer.train_from_iterator([*texts], trainer)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in marks])
    return tokenizer


def _wrapped(
    tokenizer: Tokenizer, marks: dict[str, str], *, padding_side: str, max_length: int
) -> PreTrainedTokenizerFast:
    fast: PreTrainedTokenizerFast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        padding_side=padding_side,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        **marks,
    )
    return fast


def _write(
    folder: Path, make: Callable[[], PreTrainedModel], tokenizer: PreTrainedTokenizerBase, seed: int
) -> Path:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make()
    folder.mkdir(parents=True, exist_ok=True)
    with quiet_libraries():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder
