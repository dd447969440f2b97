"""Text, speech and sequences: transformers, recurrent layers, tables, ragged tensors."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.oracle.architectures.forms import SAVED, architecture, floats, ints

L = keras.layers
TEXTS = np.array([b"the cat sat", b"a dog", b"the dog and the cat"], object)


def model(inputs: Any, outputs: Any) -> Any:
    return keras.Model(inputs, outputs)


def block(x: Any, causal: bool = False, memory: Any = None) -> Any:
    x = L.LayerNormalization()(x + L.MultiHeadAttention(2, 4)(x, x, use_causal_mask=causal))
    if memory is not None:
        x = L.LayerNormalization()(x + L.MultiHeadAttention(2, 4)(x, memory))
    return L.LayerNormalization()(x + L.Dense(8)(L.Dense(16, "gelu")(x)))


def embedded(i: Any, length: int = 6) -> Any:
    return L.Embedding(20, 8)(i) + L.Embedding(length, 8)(keras.ops.arange(length))


@architecture("transformer")
def bert() -> Any:
    i = keras.Input([6], dtype="int32")
    x = block(block(embedded(i)))
    return model(i, [L.Dense(20)(x), L.Dense(2, "tanh")(x[:, 0])])


@architecture("transformer")
def gpt() -> Any:
    i = keras.Input([6], dtype="int32")
    return model(i, L.Dense(20, "softmax")(block(block(embedded(i), causal=True), causal=True)))


@architecture("transformer")
def gpt_greedy_decode() -> Any:
    e, w = tf.Variable(floats(20, 8)), tf.Variable(floats(8, 24) * 0.3)

    def call(start: Any) -> Any:
        tokens = tf.TensorArray(tf.int32, 8, element_shape=[2], clear_after_read=False).write(0, start)
        keys, values = tf.zeros([2, 8, 8]), tf.zeros([2, 8, 8])
        for t in tf.range(7):
            q, k, v = tf.split(tf.matmul(tf.gather(tf.identity(e), tokens.read(t)), w), 3, 1)
            here = tf.one_hot(t, 8)[None, :, None]
            keys, values = keys + here * k[:, None], values + here * v[:, None]
            scores = tf.einsum("bd,btd->bt", q, keys) + tf.where(tf.range(8) <= t, 0.0, -1e9)
            y = tf.einsum("bt,btd->bd", tf.nn.softmax(scores), values)
            tokens = tokens.write(t + 1, tf.argmax(tf.matmul(y, e, transpose_b=True), 1, tf.int32))
        return tf.transpose(tokens.stack())

    return call, [ints(20, 2)], e, w


@architecture("transformer")
def vision_transformer() -> Any:
    i = keras.Input([16, 16, 3])
    x = L.Reshape([16, 8])(L.Conv2D(8, 4, 4)(i))
    x = block(x + L.Embedding(16, 8)(keras.ops.arange(16)))
    return model(i, L.Dense(5, "softmax")(L.GlobalAveragePooling1D()(x)))


@architecture("transformer")
def encoder_and_decoder() -> Any:
    i, j = keras.Input([6], dtype="int32"), keras.Input([6], dtype="int32")
    return model([i, j], L.Dense(20)(block(embedded(j), True, block(embedded(i)))))


@architecture("transformer")
def rotary_attention() -> Any:
    w = tf.Variable(floats(8, 24) * 0.4)

    def turned(x: Any) -> Any:
        angle = tf.range(6.0)[:, None] / 100.0 ** (tf.range(4.0) / 4)
        a, b = x[..., ::2], x[..., 1::2]
        sin, cos = tf.sin(angle), tf.cos(angle)
        return tf.reshape(tf.stack([a * cos - b * sin, a * sin + b * cos], -1), [2, 6, 8])

    def call(x: Any) -> Any:
        q, k, v = tf.split(tf.einsum("btd,de->bte", x, w), 3, -1)
        scores = tf.matmul(turned(q), turned(k), transpose_b=True)
        return tf.matmul(tf.nn.softmax(tf.linalg.band_part(scores, -1, 0)), v)

    return call, [floats(2, 6, 8)], w


@architecture("transformer")
def linear_attention() -> Any:
    w = tf.Variable(floats(8, 24) * 0.4)

    def call(x: Any) -> Any:
        q, k, v = tf.split(tf.tensordot(x, w, 1), 3, -1)
        q, k = tf.nn.elu(q) + 1, tf.nn.elu(k) + 1
        state = tf.cumsum(tf.einsum("btd,bte->btde", k, v), 1)
        return tf.einsum("btd,btde->bte", q, state) / tf.einsum("btd,btd->bt", q, tf.cumsum(k, 1))[..., None]

    return call, [floats(2, 6, 8)], w


@architecture("transformer")
def mixture_of_experts() -> Any:
    gate, w = tf.Variable(floats(6, 4)), tf.Variable(floats(4, 6, 5))

    def call(x: Any) -> Any:
        scores, chosen = tf.math.top_k(tf.nn.softmax(tf.matmul(x, gate)), 2)
        scores /= tf.reduce_sum(scores, 1, keepdims=True)
        return tf.einsum("bk,bi,bkio->bo", scores, x, tf.gather(w, chosen)), tf.math.bincount(chosen, minlength=4)

    return call, [floats(5, 6)], gate, w


@architecture("transformer")
def switch_routing() -> Any:
    gate, w = tf.Variable(floats(6, 3)), [tf.Variable(floats(6, 6, seed=i)) for i in range(3)]

    def call(x: Any) -> Any:
        expert = tf.argmax(tf.matmul(x, gate), 1, tf.int32)
        parts = tf.dynamic_partition(x, expert, 3)
        where = tf.dynamic_partition(tf.range(7), expert, 3)
        return tf.dynamic_stitch(where, [tf.nn.relu(tf.matmul(p, m)) for p, m in zip(parts, w, strict=True)])

    return call, [floats(7, 6)], gate, w


def _enter_recurrent() -> None:
    def enter(name: str, make: Any) -> None:
        def build() -> Any:
            i = keras.Input([6, 4])
            return model(i, L.Dense(3)(make()(i)))

        build.__name__ = name
        architecture("recurrent")(build)

    enter("lstm", lambda: L.LSTM(5))
    enter("lstm_of_two_layers", lambda: keras.Sequential([L.LSTM(5, return_sequences=True), L.LSTM(4)]))
    enter("bidirectional_lstm", lambda: L.Bidirectional(L.LSTM(5, return_sequences=True)))
    enter("gru", lambda: L.GRU(5))
    enter("gru_reset_before", lambda: L.GRU(5, reset_after=False, return_sequences=True))
    enter("bidirectional_gru", lambda: L.Bidirectional(L.GRU(5), merge_mode="sum"))
    enter("simple_recurrent", lambda: L.SimpleRNN(5, go_backwards=True))
    enter("layers_over_time", lambda: L.TimeDistributed(L.Dense(5, "relu")))
    enter("stacked_cells", lambda: L.RNN([L.LSTMCell(4), L.GRUCell(3)]))
    enter("unrolled_lstm", lambda: L.LSTM(4, unroll=True))


_enter_recurrent()


@architecture("recurrent")
def masked_lstm() -> Any:
    i = keras.Input([6], dtype="int32")
    return model(i, L.Dense(2)(L.LSTM(4)(L.Embedding(10, 5, mask_zero=True)(i))))


@architecture("recurrent")
def attention_over_gru() -> Any:
    i = keras.Input([6, 4])
    x = L.GRU(5, return_sequences=True)(i)
    return model(i, L.Dense(2)(L.Concatenate()([L.AdditiveAttention()([x, x]), L.Attention()([x, x])])))


@architecture("seq2seq")
def attention_with_greedy_decode() -> Any:
    e, w = tf.Variable(floats(12, 5)), tf.Variable(floats(10, 5) * 0.5)

    def call(source: Any) -> Any:
        memory = tf.scan(
            lambda s, x: tf.tanh(tf.matmul(tf.concat([s, x], 1), w)),
            tf.gather(e, tf.transpose(source)),
            tf.zeros([2, 5]),
        )
        state, token, out = memory[-1], tf.zeros([2], tf.int32), tf.TensorArray(tf.int32, 0, dynamic_size=True)
        i, going = tf.constant(0), tf.constant(True)
        while tf.logical_and(going, i < 6):
            weights = tf.nn.softmax(tf.einsum("bd,tbd->bt", state, memory))
            context = tf.einsum("bt,tbd->bd", weights, memory)
            state = tf.tanh(tf.matmul(tf.concat([context, tf.gather(tf.identity(e), token)], 1), w))
            token = tf.argmax(tf.matmul(state, e, transpose_b=True), 1, tf.int32)
            out = out.write(i, token)
            going = tf.reduce_any(token != 3)
            i += 1
        return out.stack(), state

    return call, [ints(12, 2, 5)], e, w


@architecture("seq2seq")
def beam_search() -> Any:
    table = tf.Variable(floats(7, 7))

    def call(start: Any) -> Any:
        tokens, scores = tf.repeat(start[:, None], 3, 1)[..., None], tf.constant([[0.0, -1e9, -1e9]] * 2)
        for _ in range(4):
            all_scores = scores[..., None] + tf.nn.log_softmax(tf.gather(table, tokens[..., -1]))
            scores, best = tf.math.top_k(tf.reshape(all_scores, [2, 21]), 3)
            tokens = tf.concat([tf.gather(tokens, best // 7, batch_dims=1), (best % 7)[..., None]], 2)
        return tokens, scores

    return call, [ints(7, 2)], table


@architecture("text")
def text_cnn() -> Any:
    i = keras.Input([12], dtype="int32")
    x = L.Embedding(20, 6)(i)
    parts = [L.GlobalMaxPooling1D()(L.Conv1D(4, k, activation="relu")(x)) for k in (2, 3, 4)]
    return model(i, L.Dense(2, "softmax")(L.Concatenate()(parts)))


@architecture("text")
def mean_of_embeddings() -> Any:
    i = keras.Input([8], dtype="int32")
    return model(i, L.Dense(3, "sigmoid")(L.GlobalAveragePooling1D()(L.Embedding(30, 5, mask_zero=True)(i))))


@architecture("text", SAVED)
def words_through_a_table() -> Any:
    words = tf.constant(["the", "cat", "dog", "a"])
    table = tf.lookup.StaticVocabularyTable(tf.lookup.KeyValueTensorInitializer(words, tf.range(4, dtype=tf.int64)), 2)
    e = tf.Variable(floats(6, 4))

    def call(texts: Any) -> Any:
        tokens = tf.strings.split(tf.strings.lower(texts))
        ids = tf.ragged.map_flat_values(table.lookup, tokens)
        dense = ids.to_tensor(-1)
        return dense, tf.reduce_sum(tf.where(dense[..., None] >= 0, tf.gather(e, tf.maximum(dense, 0)), 0.0), 1)

    return call, [TEXTS], table, e


@architecture("text")
def hashed_words() -> Any:
    e = tf.Variable(floats(16, 3))

    def call(texts: Any) -> Any:
        tokens = tf.strings.split(tf.strings.regex_replace(texts, "[aeiou]", "_"))
        ids = tf.strings.to_hash_bucket_fast(tokens.values, 16)
        return tf.math.segment_mean(tf.gather(e, ids), tokens.value_rowids())

    return call, [TEXTS], e


@architecture("text")
def pairs_of_words() -> Any:
    def call(texts: Any) -> Any:
        tokens = tf.strings.split(texts)
        pairs = tf.strings.ngrams(tokens, 2, separator="-")
        return pairs.to_tensor(), tf.strings.length(texts), tf.strings.reduce_join(tokens, axis=-1, separator="+")

    return call, [TEXTS]


@architecture("text")
def characters() -> Any:
    def call(texts: Any) -> Any:
        points = tf.strings.unicode_decode(texts, "UTF-8")
        return points.to_tensor(), tf.one_hot(points.to_tensor(shape=[3, 10]) - 97, 26), points.row_lengths()

    return call, [TEXTS]


@architecture("speech")
def spectrogram_convolutions_and_ctc() -> Any:
    k = tf.Variable(floats(3, 17, 5) * 0.3)

    def call(x: Any) -> Any:
        y = tf.math.log(tf.abs(tf.signal.stft(x, 32, 16)) + 1e-3)
        y = tf.nn.conv1d(y, k, 1, "SAME")
        decoded, score = tf.nn.ctc_greedy_decoder(tf.transpose(y, [1, 0, 2]), tf.fill([2], 9))
        return tf.sparse.to_dense(decoded[0]), score, tf.nn.log_softmax(y)

    return call, [floats(2, 160)], k


@architecture("speech")
def mel_cepstrum() -> Any:
    def call(x: Any) -> Any:
        power = tf.abs(tf.signal.stft(x, 64, 32, window_fn=tf.signal.hamming_window)) ** 2
        mel = tf.tensordot(power, tf.signal.linear_to_mel_weight_matrix(10, 33, 8000, 80, 3600), 1)
        return tf.signal.mfccs_from_log_mel_spectrograms(tf.math.log(mel + 1e-4))[..., :6]

    return call, [floats(2, 256)]


@architecture("speech")
def wavenet() -> Any:
    x = i = keras.Input([32, 2])
    x = L.Conv1D(4, 1)(x)
    for rate in (1, 2, 4):
        y, g = (L.Conv1D(4, 2, padding="causal", dilation_rate=rate, activation=a)(x) for a in ("tanh", "sigmoid"))
        x = x + L.Conv1D(4, 1)(y * g)
    return model(i, L.Dense(8, "softmax")(x))


@architecture("speech")
def keyword_spotting() -> Any:
    i = keras.Input([40, 5])
    x = L.SeparableConv1D(6, 3, activation="relu")(i)
    return model(i, L.Dense(4)(L.GRU(4)(L.MaxPooling1D(2)(L.ZeroPadding1D(1)(x)))))
