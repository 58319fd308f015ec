// Attention of new tokens to the sequences in a KV cache, in tiles.
//
// A cache has the shape (slots, capacity, heads * size), where `capacity` is a multiple of 32. Every 32 positions form
// a block. Within a block, each head has a contiguous part, in the order described in `scores.h`.
#include <algorithm>
#include <cmath>
#include <vector>

#include "scores.h"
#include "team.h"

#ifdef HAS_TILES
namespace {

constexpr int TILES = 8;  // tiles of query rows that use a chunk of keys and values while it is in the CPU's cache

// Scratch memory of one thread. Unused rows of a tile keep old contents: the rows of a matrix product are independent.
struct Work {
    std::vector<bf16> query, probs;
    std::vector<float> scores, out;
    float top[TILES * TILE], total[TILES * TILE];

    static Work& of_thread(int64_t D) {
        static thread_local Work work;
        if (work.query.size() != size_t(TILES * TILE * D)) {
            work.query.assign(TILES * TILE * D, bf16{0});
            work.out.assign(TILES * TILE * D, 0.0f);
            work.scores.assign(TILE * CHUNK, 0.0f);
            work.probs.assign(TILE * CHUNK, bf16{0});
        }
        return work;
    }
};

// The first position that a query attends to, rounded down to a chunk. Chunks begin at the same positions for every
// query, so that a row's result does not depend on the rows computed with it.
int64_t first_position(int64_t position, int64_t window) {
    return window > 0 ? std::max<int64_t>(position - window + 1, 0) / CHUNK * CHUNK : 0;
}

int64_t place_of(const Cache& cache, const Item& item, int64_t position) {
    return (item.span.slot * cache.capacity + position) * cache.H_kv * cache.D + item.head * BLOCK * cache.D;
}

// Prefetches the keys and values of an item with few rows. An item with many rows computes long enough to hide its
// loads.
Prefetch prefetch_for(const Cache& cache, const Item& item, const Queries& queries) {
    if (item.end - item.begin > TILE) return {};
    const int64_t last = item.span.start + item.span.count - 1;
    const int64_t first = first_position(item.span.start, queries.window), at = place_of(cache, item, first);
    const int64_t stride = BLOCK * cache.H_kv * cache.D * sizeof(bf16), count = (last - first) / BLOCK + 1;
    Prefetch prefetch;
    prefetch.ranges[0] = {(const char*)(cache.keys + at), stride, count};
    prefetch.ranges[1] = {(const char*)(cache.values + at), stride, count};
    prefetch.lines = BLOCK * cache.D * int64_t(sizeof(bf16)) / LINE;
    return prefetch;
}

// Prefetches the first panel of the weights.
Prefetch prefetch_for(const Weights* next) {
    if (next == nullptr) return {};
    Prefetch prefetch;
    prefetch.ranges[0] = {first_panel(next), 0, 1};
    prefetch.lines = panel_bytes(*next) / LINE;
    return prefetch;
}

void attend_item(Work& work, const Cache& cache, const Item& item, const Queries& queries, bf16* out,
                 Prefetch& prefetch) {
    const int64_t start = item.span.start, D = cache.D, width = cache.H_kv * D;
    const int share = int(queries.H / cache.H_kv), rows = item.end - item.begin;
    const int64_t window = queries.window;
    const auto place_of_row = [&](int r, int64_t stride) {
        return (item.span.first_row + (item.begin + r) / share) * stride +
               (item.head * share + (item.begin + r) % share) * D;
    };
    std::fill_n(work.out.begin(), rows * D, 0.0f);
    std::fill_n(work.top, rows, -INFINITY);
    std::fill_n(work.total, rows, 0.0f);
    for (int r = 0; r < rows; r++)
        std::memcpy(work.query.data() + r * D, queries.rows + place_of_row(r, queries.stride), D * sizeof(bf16));
    const int64_t first = start + item.begin / share, last = start + (item.end - 1) / share;
    for (int64_t begin = first_position(first, window); begin <= last; begin += CHUNK) {
        const int64_t n = std::min<int64_t>(CHUNK, last / BLOCK * BLOCK + BLOCK - begin);
        const int64_t at = place_of(cache, item, begin), block = BLOCK * width;
        for (int tile = 0; tile < rows; tile += TILE) {
            const int num_rows = std::min(TILE, rows - tile);
            score(work.query.data() + tile * D, num_rows, cache.keys + at, block, D, n, work.scores.data(), prefetch);
            for (int r = tile; r < tile + num_rows; r++) {
                const int64_t position = start + (item.begin + r) / share;
                const int64_t oldest = window > 0 ? position - window + 1 : 0;
                const int64_t to = std::clamp<int64_t>(position + 1 - begin, 0, n);
                float* scores = work.scores.data() + (r - tile) * CHUNK;
                mask_scores(scores, std::clamp<int64_t>(oldest - begin, 0, to), to, n);
                online_softmax(scores, n, queries.scale, D, work.top[r], work.total[r],
                               work.probs.data() + (r - tile) * CHUNK, work.out.data() + r * D, prefetch);
            }
            accumulate_values(work.probs.data(), num_rows, cache.values + at, block, D, n, work.out.data() + tile * D,
                              prefetch);
        }
    }
    for (int r = 0; r < rows; r++) {
        bf16* target = out + place_of_row(r, queries.H * D);
        for (int64_t d = 0; d < D; d++) target[d] = round_to<bf16>(work.out[r * D + d] / work.total[r]);
    }
}

}  // namespace

std::vector<Token> tokens_of(const Span* spans, int64_t num_spans) {
    std::vector<Token> tokens;
    for (const Span* span = spans; span < spans + num_spans; span++)
        for (int i = 0; i < span->count; i++) tokens.push_back({span->first_row + i, span->slot, span->start + i});
    return tokens;
}

void store_token(const Cache& cache, const Token& token, const bf16* key, const bf16* value) {
    const int64_t within = token.position % BLOCK, D = cache.D;
    int64_t place = (token.slot * cache.capacity + token.position - within) * cache.H_kv * D;
    for (int64_t head = 0; head < cache.H_kv; head++, key += D, value += D, place += BLOCK * D) {
        pack_key(key, within, D, cache.keys + place);
        pack_value(value, within, D, cache.values + place);
    }
}

std::vector<Item> items_of(const Span* spans, int64_t num_spans, int64_t H, int64_t H_kv) {
    std::vector<Item> items;
    for (const Span* span = spans; span < spans + num_spans; span++)
        for (int head = 0; head < H_kv; head++)
            for (int begin = 0, rows = span->count * int(H / H_kv); begin < rows; begin += TILES * TILE)
                items.push_back({*span, head, begin, std::min(begin + TILES * TILE, rows)});
    return items;
}

void team_attend(const Cache& cache, const std::vector<Item>& items, const Queries& queries, bf16* out,
                 std::atomic<size_t>& claimed, const Weights* next) {
    Work& work = Work::of_thread(cache.D);
    const size_t num = items.size(), last = 2 * omp_get_num_threads();
    for (size_t current = claimed++; current < num;) {
        // Claims the next item early, to prefetch its data. Not near the end, because another thread would then be
        // idle.
        const bool claims_two = current + last < num;
        const size_t next_item = claims_two ? claimed++ : num;
        Prefetch prefetch = next_item < num ? prefetch_for(cache, items[next_item], queries) : prefetch_for(next);
        attend_item(work, cache, items[current], queries, out, prefetch);
        current = claims_two ? next_item : claimed++;
    }
#pragma omp barrier
}

// Writes the keys and values (T, H_kv, D) of new tokens, rows `stride` numbers apart, to the cache.
extern "C" void store(const bf16* key, const bf16* value, int64_t stride, bf16* keys, bf16* values, const Span* spans,
                      int64_t num_spans, int64_t capacity, int64_t H_kv, int64_t D, int threads) {
    const Cache cache{keys, values, capacity, H_kv, D};
    const std::vector<Token> tokens = tokens_of(spans, num_spans);
#pragma omp parallel for num_threads(threads) if (tokens.size() > 4)
    for (size_t t = 0; t < tokens.size(); t++)
        store_token(cache, tokens[t], key + tokens[t].row * stride, value + tokens[t].row * stride);
}

// Computes out (T, H, D), the attention of the spans' queries (T, H, D) to all earlier positions of their slots and to
// their own positions. A `window` > 0 limits it to the latest `window` positions. The rows of `query` are `stride`
// numbers apart. D is a multiple of 64.
extern "C" void attend(const bf16* query, int64_t stride, const bf16* keys, const bf16* values, bf16* out,
                       const Span* spans, int64_t num_spans, int64_t capacity, int64_t H, int64_t H_kv, int64_t D,
                       float scale, int64_t window, int threads) {
    const Cache cache{const_cast<bf16*>(keys), const_cast<bf16*>(values), capacity, H_kv, D};
    const std::vector<Item> items = items_of(spans, num_spans, H, H_kv);
    std::atomic<size_t> claimed{0};
#pragma omp parallel num_threads(threads)
    {
        Tiles tiles;
        team_attend(cache, items, {query, stride, H, scale, window}, out, claimed, nullptr);
    }
}
#endif
