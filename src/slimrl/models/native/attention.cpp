// Attention of new tokens to the sequences in a KV cache, on the AMX unit.
//
// A cache is (slots, capacity, heads * size) numbers, `capacity` a multiple of 32. Every 32 positions form a block, and
// within a block each head has its own part, in the orders of `scores.h`.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "scores.h"

#ifdef __AMX_BF16__
namespace {

constexpr int TILES = 8;  // of rows that go over keys and values together, while a chunk of these is in the cache

// Rows of one sequence: query heads that share a key head, of consecutive tokens. Row r is the head r % share of the
// token r / share, counted from the first of the span.
struct Item {
    const int32_t* span;  // as in `attend` below
    int head, begin, end;
};

struct Shape {
    int64_t capacity, H, H_kv, D, query_stride;
    int share() const { return int(H / H_kv); }
    int64_t row_numbers() const { return H_kv * D; }
};

// A thread's own memory. Rows of a tile that has fewer than sixteen hold what was there before: a product's rows do not
// mix.
struct Work {
    std::vector<bf16> query, masses;
    std::vector<float> scores, out;
    float top[TILES * TILE], total[TILES * TILE];

    static Work& of_thread(int64_t D) {
        static thread_local Work work;
        if (work.query.size() != size_t(TILES * TILE * D)) {
            work.query.assign(TILES * TILE * D, bf16{0});
            work.out.assign(TILES * TILE * D, 0.0f);
            work.scores.assign(TILE * CHUNK, 0.0f);
            work.masses.assign(TILE * CHUNK, bf16{0});
        }
        return work;
    }
};

void attend_item(Work& work, const Item& item, const Shape& shape, const bf16* query, const bf16* keys,
                 const bf16* values, bf16* out, float scale, int64_t window) {
    const int64_t slot = item.span[0], first_row = item.span[1], start = item.span[3], D = shape.D;
    const int share = shape.share(), rows = item.end - item.begin;
    const int64_t place = slot * shape.capacity * shape.row_numbers() + item.head * BLOCK * D;
    const auto place_of_row = [&](int r, int64_t stride) {
        return (first_row + (item.begin + r) / share) * stride + (item.head * share + (item.begin + r) % share) * D;
    };
    std::fill_n(work.out.begin(), rows * D, 0.0f);
    std::fill_n(work.top, rows, -INFINITY);
    std::fill_n(work.total, rows, 0.0f);
    for (int r = 0; r < rows; r++)
        std::memcpy(work.query.data() + r * D, query + place_of_row(r, shape.query_stride), D * sizeof(bf16));
    const int64_t first = start + item.begin / share, last = start + (item.end - 1) / share;
    // Chunks begin at the same positions for every query, so that a row's result does not depend on what is beside it.
    int64_t begin = window > 0 ? std::max<int64_t>(first - window + 1, 0) / CHUNK * CHUNK : 0;
    for (; begin <= last; begin += CHUNK) {
        const int64_t n = std::min<int64_t>(CHUNK, last / BLOCK * BLOCK + BLOCK - begin);
        const int64_t at = place + begin * shape.row_numbers(), block = BLOCK * shape.row_numbers();
        for (int tile = 0; tile < rows; tile += TILE) {
            score(work.query.data() + tile * D, keys + at, block, D, n, work.scores.data());
            for (int r = tile; r < std::min(tile + TILE, rows); r++) {
                const int64_t position = start + (item.begin + r) / share;
                const int64_t oldest = window > 0 ? position - window + 1 : 0;
                const int64_t to = std::clamp<int64_t>(position + 1 - begin, 0, n);
                float* scores = work.scores.data() + (r - tile) * CHUNK;
                hide(scores, std::clamp<int64_t>(oldest - begin, 0, to), to, n);
                weigh(scores, n, scale, D, work.top[r], work.total[r], work.masses.data() + (r - tile) * CHUNK,
                      work.out.data() + r * D);
            }
            mix(work.masses.data(), values + at, block, D, n, work.out.data() + tile * D);
        }
    }
    for (int r = 0; r < rows; r++) {
        bf16* target = out + place_of_row(r, shape.H * D);
        for (int64_t d = 0; d < D; d++) target[d] = rounded<bf16>(work.out[r * D + d] / work.total[r]);
    }
}

}  // namespace

// Writes the keys and values (T, H_kv, D) of new tokens, rows `stride` numbers apart, to the cache. A span is four
// numbers: slot, first row of the new tokens, how many, and the position of the first.
extern "C" void store(const bf16* key, const bf16* value, int64_t stride, bf16* keys, bf16* values,
                      const int32_t* spans, int64_t num_spans, int64_t capacity, int64_t H_kv, int64_t D, int threads) {
    std::vector<std::array<int64_t, 3>> tokens;  // row, slot, position
    for (const int32_t* span = spans; span < spans + 4 * num_spans; span += 4)
        for (int i = 0; i < span[2]; i++) tokens.push_back({span[1] + i, span[0], span[3] + i});
#pragma omp parallel for num_threads(threads) if (tokens.size() > 4)
    for (size_t t = 0; t < tokens.size(); t++) {
        const auto [row, slot, position] = tokens[t];
        const int64_t within = position % BLOCK;
        const int64_t block = (slot * capacity + position - within) * H_kv * D;
        for (int64_t head = 0; head < H_kv; head++) {
            place_key(key + row * stride + head * D, within, D, keys + block + head * BLOCK * D);
            place_value(value + row * stride + head * D, within, D, values + block + head * BLOCK * D);
        }
    }
}

// Attention of the spans' queries (T, H, D), rows `stride` numbers apart, to all earlier positions of their slots and
// to their own, at most `window` of them if that is not 0. out (T, H, D). D is a multiple of 64.
extern "C" void attend(const bf16* query, int64_t stride, const bf16* keys, const bf16* values, bf16* out,
                       const int32_t* spans, int64_t num_spans, int64_t capacity, int64_t H, int64_t H_kv, int64_t D,
                       float scale, int64_t window, int threads) {
    const Shape shape{capacity, H, H_kv, D, stride};
    std::vector<Item> items;
    for (const int32_t* span = spans; span < spans + 4 * num_spans; span += 4)
        for (int head = 0; head < H_kv; head++)
            for (int begin = 0, rows = span[2] * shape.share(); begin < rows; begin += TILES * TILE)
                items.push_back({span, head, begin, std::min(begin + TILES * TILE, rows)});
#pragma omp parallel num_threads(threads)
    {
        Tiles tiles;
        Work& work = Work::of_thread(D);
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < items.size(); i++)
            attend_item(work, items[i], shape, query, keys, values, out, scale, window);
    }
}
#endif
