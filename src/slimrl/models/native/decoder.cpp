// The layers of a decoder (norm, attention with rotary positions, norm, gated MLP) for new tokens, in one call. With a
// few dozen tokens, the work between two products is so small that calls from Python would take as long as the work.
#include "rows.h"
#include "team.h"

#ifdef HAS_TILES
// One layer. `key_norm` and `query_norm` are null if heads have no norm.
struct Layer {
    const bf16 *before, *after, *query_norm, *key_norm;  // the norms' weights
    Weights qkv, out, mix, down;                         // `mix` has two halves: gate and up
    bf16 *keys, *values;                                 // the cache
    int64_t window;                                      // of sliding attention, in positions; 0 means all
};

// The settings that all layers share: the size of the hidden state, the numbers of query and key heads, the size of a
// head, and the number of positions in a cache slot.
struct Decoder {
    int64_t hidden, H, H_kv, D, capacity;
    float eps, scale;
};

// Computes all layers on `hidden` (T, hidden), in place. `cosines` and `sines` (T, D / 2) are the rotary factors of the
// tokens' positions. `scratch` has room for T (hidden + H D + (H + 2 H_kv) D) numbers, and for the MLP's inner layer.
extern "C" void decode(const Layer* layers, int64_t num_layers, const Decoder* decoder, bf16* hidden, int64_t T,
                       const bf16* cosines, const bf16* sines, const Span* spans, int64_t num_spans, bf16* scratch,
                       int threads) {
    const int64_t width = decoder->hidden, H = decoder->H, H_kv = decoder->H_kv, D = decoder->D;
    const int64_t stride = (H + 2 * H_kv) * D;
    const float eps = decoder->eps;
    bf16 *normed = scratch, *heads = normed + T * width, *attended = heads + T * stride, *mixed = attended + T * H * D;
    const std::vector<Token> tokens = tokens_of(spans, num_spans);
    const std::vector<Item> items = items_of(spans, num_spans, H, H_kv);
    std::vector<std::atomic<size_t>> claimed(num_layers);
#pragma omp parallel num_threads(threads)
    {
        Tiles tiles;
        for (const Layer* layer = layers; layer < layers + num_layers; layer++) {
            const Cache cache{layer->keys, layer->values, decoder->capacity, H_kv, D};
#pragma omp for schedule(static)
            for (int64_t t = 0; t < T; t++) norm_row(hidden + t * width, layer->before, eps, width, normed + t * width);
            team_product(layer->qkv, {normed, T, heads, nullptr, Epilogue::None}, nullptr);
#pragma omp for schedule(static)
            for (size_t t = 0; t < tokens.size(); t++) {
                const int64_t row = tokens[t].row, turn = row * D / 2;
                bf16 *query = heads + row * stride, *key = query + H * D, *value = key + H_kv * D;
                for (bf16* head = query; head < value; head += D) {
                    const bf16* norm = head < key ? layer->query_norm : layer->key_norm;
                    if (norm != nullptr) norm_row(head, norm, eps, D, head);
                    rotate_head(head, cosines + turn, sines + turn, 1.0f, D, head);
                }
                store_token(cache, tokens[t], key, value);
            }
            team_attend(cache, items, {heads, stride, H, decoder->scale, layer->window}, attended,
                        claimed[layer - layers], &layer->out);
            team_product(layer->out, {attended, T, hidden, hidden, Epilogue::Add}, &layer->mix);
#pragma omp for schedule(static)
            for (int64_t t = 0; t < T; t++) norm_row(hidden + t * width, layer->after, eps, width, normed + t * width);
            team_product(layer->mix, {normed, T, mixed, nullptr, Epilogue::Gate}, &layer->down);
            const Weights* after = layer + 1 < layers + num_layers ? &layer[1].qkv : nullptr;
            team_product(layer->down, {mixed, T, hidden, hidden, Epilogue::Add}, after);
        }
    }
}
#endif
