// Attention within a packed row of tokens and its gradient, in tiles.
//
// The row consists of segments, which form trees. A token attends to all ancestors of its segment, and causally to its
// own segment. The forward pass and the query's gradient iterate over blocks of queries and the keys that they attend
// to. The gradients of keys and values iterate over blocks of keys and the queries that attend to them. These are the
// same products with the sides exchanged. So each result is accumulated by one thread in a fixed order, and no two
// threads write to it.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "scores.h"

#ifdef HAS_TILES
namespace {

// `parent` is the index of the segment that this segment continues, or -1. `position` is the position of its first
// token.
struct Segment {
    int32_t start, length, parent, position;
};

struct Shape {
    int64_t T, H, H_kv, D;
    float scale;
    int64_t window;
    int threads;
    int64_t share() const { return H / H_kv; }
};

// One side of the products: the queries or the keys. It holds the rows of all segments for each key head. A token has
// `share` rows, one for each of its heads. Every segment starts in a new block.
struct Side {
    std::vector<int64_t> first;  // first block of every segment
    int64_t blocks = 0, share, D;
    std::unique_ptr<bf16[]> keys, values;  // (heads, blocks, BLOCK * D), in the two orders of `scores.h`

    Side(const std::vector<Segment>& segments, int64_t share, int64_t D) : share(share), D(D) {
        for (const Segment& segment : segments) {
            first.push_back(blocks);
            blocks += (segment.length * share + BLOCK - 1) / BLOCK;
        }
    }

    int64_t place(int64_t segment, int64_t head) const { return (head * blocks + first[segment]) * BLOCK * D; }
};

// Returns the row of x (T, heads * share, D) for row r of a segment on one side.
const bf16* row_of(const bf16* x, const Segment& segment, int64_t r, int64_t head, int64_t heads, int64_t share,
                   int64_t D) {
    return x + ((segment.start + r / share) * heads * share + head * share + r % share) * D;
}

// Packs x (T, heads * share, D) into one of the orders of a side; the rows that fill the last block are 0.
std::unique_ptr<bf16[]> pack_side(const bf16* x, const Side& side, const std::vector<Segment>& segments,
                                  const Shape& shape, void (*place)(const bf16*, int64_t, int64_t, bf16*)) {
    const int64_t D = shape.D;
    std::unique_ptr<bf16[]> result(new bf16[shape.H_kv * side.blocks * BLOCK * D]);
    const std::vector<bf16> zero(D, bf16{0});
#pragma omp parallel for collapse(2) num_threads(shape.threads) schedule(dynamic)
    for (int64_t head = 0; head < shape.H_kv; head++)
        for (size_t s = 0; s < segments.size(); s++) {
            const int64_t rows = segments[s].length * side.share;
            for (int64_t r = 0; r < (rows + BLOCK - 1) / BLOCK * BLOCK; r++) {
                const bf16* from = r < rows ? row_of(x, segments[s], r, head, shape.H_kv, side.share, D) : zero.data();
                place(from, r % BLOCK, D, result.get() + side.place(s, head) + r / BLOCK * BLOCK * D);
            }
        }
    return result;
}

// Sixteen rows of one side: those of a segment and a key head, from row `begin` on.
struct Item {
    int64_t segment, head, begin, rows;
};

std::vector<Item> items_of(const std::vector<Segment>& segments, int64_t heads, int64_t share) {
    std::vector<Item> items;
    for (size_t s = 0; s < segments.size(); s++)
        for (int64_t head = 0; head < heads; head++)
            for (int64_t begin = 0, rows = segments[s].length * share; begin < rows; begin += TILE)
                items.push_back({int64_t(s), head, begin, std::min<int64_t>(TILE, rows - begin)});
    return items;
}

// A part of the other side: `rows` rows of a segment. Row r of an item attends to, or is attended by, the rows
// from[r]..to[r] of the part.
struct Part {
    int64_t segment, begin, rows;
    int64_t from[TILE], to[TILE];
};

// Returns the keys that the queries of an item attend to, in parts of at most CHUNK rows, from the item's segment up to
// the root.
std::vector<Part> key_parts(const Item& item, const std::vector<Segment>& segments, const Shape& shape) {
    std::vector<Part> parts;
    const Segment& own = segments[item.segment];
    for (int64_t segment = item.segment; segment >= 0; segment = segments[segment].parent) {
        const int64_t length = segments[segment].length, after = own.position - segments[segment].position;
        for (int64_t begin = 0; begin < length; begin += CHUNK) {
            Part part{segment, begin, std::min<int64_t>(CHUNK, length - begin), {}, {}};
            bool any = false;
            for (int64_t r = 0; r < item.rows; r++) {
                const int64_t query = after + (item.begin + r) / shape.share() - begin;  // place in the part
                part.from[r] = shape.window > 0 ? std::clamp<int64_t>(query - shape.window + 1, 0, part.rows) : 0;
                part.to[r] = std::clamp<int64_t>(query + 1, part.from[r], part.rows);
                any |= part.to[r] > part.from[r];
            }
            if (any) parts.push_back(part);
        }
    }
    return parts;
}

// Returns the queries that attend to the keys of an item: the queries of its segment and of all descendants.
std::vector<Part> query_parts(const Item& item, const std::vector<Segment>& segments,
                              const std::vector<std::vector<int64_t>>& children, const Shape& shape) {
    std::vector<Part> parts;
    std::vector<int64_t> waiting{item.segment};
    while (!waiting.empty()) {
        const int64_t segment = waiting.back();
        const int64_t after = segments[segment].position - segments[item.segment].position;
        waiting.pop_back();
        waiting.insert(waiting.end(), children[segment].begin(), children[segment].end());
        const int64_t rows = segments[segment].length * shape.share();
        for (int64_t begin = 0; begin < rows; begin += CHUNK) {
            Part part{segment, begin, std::min<int64_t>(CHUNK, rows - begin), {}, {}};
            bool any = false;
            for (int64_t r = 0; r < item.rows; r++) {
                const int64_t first =
                    (item.begin + r - after) * shape.share() - begin;  // the row of the key's own token
                part.from[r] = std::clamp<int64_t>(first, 0, part.rows);
                part.to[r] = part.rows;
                if (shape.window > 0)
                    part.to[r] = std::clamp<int64_t>(first + shape.window * shape.share(), part.from[r], part.rows);
                any |= part.to[r] > part.from[r];
            }
            if (any) parts.push_back(part);
        }
    }
    return parts;
}

struct Work {
    std::vector<bf16> rows, rows2, probs, dscores;
    std::vector<float> scores, products, out, out2;
    Prefetch no_prefetch;
    explicit Work(int64_t D)
        : rows(TILE * D),
          rows2(TILE * D),
          probs(TILE * CHUNK),
          dscores(TILE * CHUNK),
          scores(TILE * CHUNK),
          products(TILE * CHUNK),
          out(TILE * D),
          out2(TILE * D) {}
};

void gather(const bf16* x, const Item& item, const std::vector<Segment>& segments, const Shape& shape, int64_t share,
            bf16* to) {
    for (int64_t r = 0; r < item.rows; r++)
        std::memcpy(to + r * shape.D,
                    row_of(x, segments[item.segment], item.begin + r, item.head, shape.H_kv, share, shape.D),
                    shape.D * sizeof(bf16));
}

void scatter(const float* from, const Item& item, const std::vector<Segment>& segments, const Shape& shape,
             int64_t share, bf16* x) {
    for (int64_t r = 0; r < item.rows; r++) {
        bf16* to =
            const_cast<bf16*>(row_of(x, segments[item.segment], item.begin + r, item.head, shape.H_kv, share, shape.D));
        for (int64_t d = 0; d < shape.D; d++) to[d] = round_to<bf16>(from[r * shape.D + d]);
    }
}

int64_t round_up(int64_t rows) { return (rows + BLOCK - 1) / BLOCK * BLOCK; }

// Computes one row's probabilities p = e^(score scale - logsumexp) and gradients of its scores d = p (product - delta)
// scale, as in FlashAttention (2205.14135). If `of_row`, the row is a query, and `logsumexp` and `delta` point to its
// values. Otherwise the row is a key, and they point to the values of the queries that it is multiplied with.
template <bool of_row>
void differentiate(float* scores, const float* products, const float* logsumexp, const float* delta, int64_t from,
                   int64_t to, int64_t n, float scale, bf16* p, bf16* d) {
    mask_scores(scores, from, to, n);
    for (int64_t at = 0; at < n; at += BLOCK)
#pragma omp simd
        for (int64_t k = at; k < at + BLOCK; k++) {
            const int64_t i = of_row ? 0 : k;
            const float prob = fast_exp(scores[k] * scale - logsumexp[i]);
            p[k] = round_to<bf16>(prob);
            d[k] = round_to<bf16>(prob * (products[k] - delta[i]) * scale);
        }
}

std::vector<Segment> read_segments(const int32_t* table, int64_t count) {
    std::vector<Segment> segments(count);
    std::memcpy(segments.data(), table, count * sizeof(Segment));
    return segments;
}

}  // namespace

// out (T, H, D) = attention of query (T, H, D) to key and value (T, H_kv, D). `table` has four numbers for each
// segment: its first token, its length, the index of its parent (or -1), and the position of its first token. logsumexp
// (T, H) is the log-sum-exp of the scaled scores.
extern "C" void packed_attend(const bf16* query, const bf16* key, const bf16* value, bf16* out, float* logsumexp,
                              const int32_t* table, int64_t count, int64_t T, int64_t H, int64_t H_kv, int64_t D,
                              float scale, int64_t window, int threads) {
    const Shape shape{T, H, H_kv, D, scale, window, threads};
    const std::vector<Segment> segments = read_segments(table, count);
    Side keys(segments, 1, D);
    keys.keys = pack_side(key, keys, segments, shape, pack_key);
    keys.values = pack_side(value, keys, segments, shape, pack_value);
    const std::vector<Item> items = items_of(segments, H_kv, shape.share());
#pragma omp parallel num_threads(threads)
    {
        Tiles tiles;
        Work work(D);
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < items.size(); i++) {
            const Item& item = items[i];
            float top[TILE], total[TILE] = {};
            std::fill(top, top + TILE, -INFINITY);
            std::fill(work.out.begin(), work.out.end(), 0.0f);
            gather(query, item, segments, shape, shape.share(), work.rows.data());
            for (const Part& part : key_parts(item, segments, shape)) {
                const int64_t place = keys.place(part.segment, item.head) + part.begin * D, n = round_up(part.rows);
                score(work.rows.data(), int(item.rows), keys.keys.get() + place, BLOCK * D, D, n, work.scores.data(),
                      work.no_prefetch);
                for (int64_t r = 0; r < item.rows; r++) {
                    mask_scores(work.scores.data() + r * CHUNK, part.from[r], part.to[r], n);
                    online_softmax(work.scores.data() + r * CHUNK, n, scale, D, top[r], total[r],
                                   work.probs.data() + r * CHUNK, work.out.data() + r * D, work.no_prefetch);
                }
                accumulate_values(work.probs.data(), int(item.rows), keys.values.get() + place, BLOCK * D, D, n,
                                  work.out.data(), work.no_prefetch);
            }
            for (int64_t r = 0; r < item.rows; r++) {
                for (int64_t d = 0; d < D; d++) work.out[r * D + d] /= total[r];
                const int64_t token = segments[item.segment].start + (item.begin + r) / shape.share();
                logsumexp[token * H + item.head * shape.share() + (item.begin + r) % shape.share()] =
                    top[r] + std::log(total[r]);
            }
            scatter(work.out.data(), item, segments, shape, shape.share(), out);
        }
    }
}

// Computes the gradients of query, key and value, given `grad`, the gradient of `out`.
extern "C" void packed_backward(const bf16* query, const bf16* key, const bf16* value, const bf16* out,
                                const bf16* grad, const float* logsumexp, bf16* grad_query, bf16* grad_key,
                                bf16* grad_value, const int32_t* table, int64_t count, int64_t T, int64_t H,
                                int64_t H_kv, int64_t D, float scale, int64_t window, int threads) {
    const Shape shape{T, H, H_kv, D, scale, window, threads};
    const int64_t share = shape.share();
    const std::vector<Segment> segments = read_segments(table, count);
    std::vector<std::vector<int64_t>> children(count);
    for (int64_t s = 0; s < count; s++)
        if (segments[s].parent >= 0) children[segments[s].parent].push_back(s);
    Side keys(segments, 1, D), values(segments, 1, D), queries(segments, share, D), grads(segments, share, D);
    keys.keys = pack_side(key, keys, segments, shape, pack_key);
    keys.values = pack_side(key, keys, segments, shape, pack_value);
    values.keys = pack_side(value, values, segments, shape, pack_key);
    queries.keys = pack_side(query, queries, segments, shape, pack_key);
    queries.values = pack_side(query, queries, segments, shape, pack_value);
    grads.keys = pack_side(grad, grads, segments, shape, pack_key);
    grads.values = pack_side(grad, grads, segments, shape, pack_value);
    // The log-sum-exp and delta = sum(out grad) of every query row, in the order of `queries`.
    std::vector<float> lses(H_kv * queries.blocks * BLOCK), deltas(H_kv * queries.blocks * BLOCK);
    const std::vector<Item> query_items = items_of(segments, H_kv, share), key_items = items_of(segments, H_kv, 1);
#pragma omp parallel num_threads(threads)
    {
        Tiles tiles;
        Work work(D);
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < query_items.size(); i++) {
            const Item& item = query_items[i];
            const int64_t place = queries.place(item.segment, item.head) / D + item.begin;
            for (int64_t r = 0; r < item.rows; r++) {
                const bf16* o = row_of(out, segments[item.segment], item.begin + r, item.head, H_kv, share, D);
                const bf16* g = grad + (o - out);
                float delta = 0;
#pragma omp simd reduction(+ : delta)
                for (int64_t d = 0; d < D; d++) delta += to_float(o[d]) * to_float(g[d]);
                lses[place + r] = logsumexp[(o - out) / D];
                deltas[place + r] = delta;
            }
            std::fill(work.out.begin(), work.out.end(), 0.0f);
            gather(query, item, segments, shape, share, work.rows.data());
            gather(grad, item, segments, shape, share, work.rows2.data());
            for (const Part& part : key_parts(item, segments, shape)) {
                const int64_t at = keys.place(part.segment, item.head) + part.begin * D, n = round_up(part.rows);
                score(work.rows.data(), int(item.rows), keys.keys.get() + at, BLOCK * D, D, n, work.scores.data(),
                      work.no_prefetch);
                score(work.rows2.data(), int(item.rows), values.keys.get() + at, BLOCK * D, D, n, work.products.data(),
                      work.no_prefetch);
                for (int64_t r = 0; r < item.rows; r++)
                    differentiate<true>(work.scores.data() + r * CHUNK, work.products.data() + r * CHUNK,
                                        &lses[place + r], &deltas[place + r], part.from[r], part.to[r], n, scale,
                                        work.probs.data() + r * CHUNK, work.dscores.data() + r * CHUNK);
                accumulate_values(work.dscores.data(), int(item.rows), keys.values.get() + at, BLOCK * D, D, n,
                                  work.out.data(), work.no_prefetch);
            }
            scatter(work.out.data(), item, segments, shape, share, grad_query);
        }
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < key_items.size(); i++) {
            const Item& item = key_items[i];
            std::fill(work.out.begin(), work.out.end(), 0.0f);
            std::fill(work.out2.begin(), work.out2.end(), 0.0f);
            gather(key, item, segments, shape, 1, work.rows.data());
            gather(value, item, segments, shape, 1, work.rows2.data());
            for (const Part& part : query_parts(item, segments, children, shape)) {
                const int64_t at = queries.place(part.segment, item.head) + part.begin * D, n = round_up(part.rows);
                score(work.rows.data(), int(item.rows), queries.keys.get() + at, BLOCK * D, D, n, work.scores.data(),
                      work.no_prefetch);
                score(work.rows2.data(), int(item.rows), grads.keys.get() + at, BLOCK * D, D, n, work.products.data(),
                      work.no_prefetch);
                for (int64_t r = 0; r < item.rows; r++)
                    differentiate<false>(work.scores.data() + r * CHUNK, work.products.data() + r * CHUNK,
                                         &lses[at / D], &deltas[at / D], part.from[r], part.to[r], n, scale,
                                         work.probs.data() + r * CHUNK, work.dscores.data() + r * CHUNK);
                accumulate_values(work.dscores.data(), int(item.rows), queries.values.get() + at, BLOCK * D, D, n,
                                  work.out.data(), work.no_prefetch);
                accumulate_values(work.probs.data(), int(item.rows), grads.values.get() + at, BLOCK * D, D, n,
                                  work.out2.data(), work.no_prefetch);
            }
            scatter(work.out.data(), item, segments, shape, 1, grad_key);
            scatter(work.out2.data(), item, segments, shape, 1, grad_value);
        }
    }
}
#endif
