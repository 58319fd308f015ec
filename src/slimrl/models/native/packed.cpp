// Attention within a packed row of tokens and its gradient, in tiles.
//
// The row consists of stretches, a tree of them; a stretch's tokens see those of its ancestors and themselves,
// causally. The forward pass and the query's gradient go over blocks of queries and what they see; the gradients of
// keys and values go over blocks of keys and what sees them: the same products with the sides exchanged. So every
// number is added up by one thread in one order.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "scores.h"

#ifdef HAS_TILES
namespace {

// `parent` is the number of the stretch that this one continues, or -1; `position` is that of its first token.
struct Stretch {
    int32_t start, length, parent, position;
};

struct Shape {
    int64_t T, H, H_kv, D;
    float scale;
    int64_t window;
    int threads;
    int64_t share() const { return H / H_kv; }
};

// One side of the products, queries or keys: for each key head the rows of all stretches, a token's query heads as
// `share` rows, every stretch from a new block on.
struct Side {
    std::vector<int64_t> first;  // block of every stretch
    int64_t blocks = 0, share, D;
    std::unique_ptr<bf16[]> keys, values;  // (heads, blocks, BLOCK * D), in the two orders of `scores.h`

    Side(const std::vector<Stretch>& stretches, int64_t share, int64_t D) : share(share), D(D) {
        for (const Stretch& stretch : stretches) {
            first.push_back(blocks);
            blocks += (stretch.length * share + BLOCK - 1) / BLOCK;
        }
    }

    int64_t place(int64_t stretch, int64_t head) const { return (head * blocks + first[stretch]) * BLOCK * D; }
};

// The row of x (T, heads * share, D) that is row r of a stretch on one side.
const bf16* row_of(const bf16* x, const Stretch& stretch, int64_t r, int64_t head, int64_t heads, int64_t share,
                   int64_t D) {
    return x + ((stretch.start + r / share) * heads * share + head * share + r % share) * D;
}

// Brings x (T, heads * share, D) into one order of a side.
std::unique_ptr<bf16[]> placed(const bf16* x, const Side& side, const std::vector<Stretch>& stretches,
                               const Shape& shape, void (*place)(const bf16*, int64_t, int64_t, bf16*)) {
    const int64_t D = shape.D;
    std::unique_ptr<bf16[]> result(new bf16[shape.H_kv * side.blocks * BLOCK * D]);
    const std::vector<bf16> zero(D, bf16{0});
#pragma omp parallel for collapse(2) num_threads(shape.threads) schedule(dynamic)
    for (int64_t head = 0; head < shape.H_kv; head++)
        for (size_t s = 0; s < stretches.size(); s++) {
            const int64_t rows = stretches[s].length * side.share;
            for (int64_t r = 0; r < (rows + BLOCK - 1) / BLOCK * BLOCK; r++) {
                const bf16* from = r < rows ? row_of(x, stretches[s], r, head, shape.H_kv, side.share, D) : zero.data();
                place(from, r % BLOCK, D, result.get() + side.place(s, head) + r / BLOCK * BLOCK * D);
            }
        }
    return result;
}

// Sixteen rows of one side: those of a stretch and a key head, from row `begin` on.
struct Item {
    int64_t stretch, head, begin, rows;
};

std::vector<Item> items_of(const std::vector<Stretch>& stretches, int64_t heads, int64_t share) {
    std::vector<Item> items;
    for (size_t s = 0; s < stretches.size(); s++)
        for (int64_t head = 0; head < heads; head++)
            for (int64_t begin = 0, rows = stretches[s].length * share; begin < rows; begin += TILE)
                items.push_back({int64_t(s), head, begin, std::min<int64_t>(TILE, rows - begin)});
    return items;
}

// Some rows of the other side: `rows` of a stretch, of which row r of an item sees, or is seen by, from(r)..to(r).
struct Part {
    int64_t stretch, begin, rows;
    int64_t from[TILE], to[TILE];
};

// What the queries of an item see, in parts of at most CHUNK rows: from the item's own stretch up to the root.
std::vector<Part> seen(const Item& item, const std::vector<Stretch>& stretches, const Shape& shape) {
    std::vector<Part> parts;
    const Stretch& own = stretches[item.stretch];
    for (int64_t stretch = item.stretch; stretch >= 0; stretch = stretches[stretch].parent) {
        const int64_t length = stretches[stretch].length, after = own.position - stretches[stretch].position;
        for (int64_t begin = 0; begin < length; begin += CHUNK) {
            Part part{stretch, begin, std::min<int64_t>(CHUNK, length - begin), {}, {}};
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

// What sees the keys of an item: its own stretch and all that continue it.
std::vector<Part> seers(const Item& item, const std::vector<Stretch>& stretches,
                        const std::vector<std::vector<int64_t>>& children, const Shape& shape) {
    std::vector<Part> parts;
    std::vector<int64_t> waiting{item.stretch};
    while (!waiting.empty()) {
        const int64_t stretch = waiting.back();
        const int64_t after = stretches[stretch].position - stretches[item.stretch].position;
        waiting.pop_back();
        waiting.insert(waiting.end(), children[stretch].begin(), children[stretch].end());
        const int64_t rows = stretches[stretch].length * shape.share();
        for (int64_t begin = 0; begin < rows; begin += CHUNK) {
            Part part{stretch, begin, std::min<int64_t>(CHUNK, rows - begin), {}, {}};
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
    std::vector<bf16> rows, other, masses, more;
    std::vector<float> scores, products, out, out2;
    Ahead nothing;
    explicit Work(int64_t D)
        : rows(TILE * D),
          other(TILE * D),
          masses(TILE * CHUNK),
          more(TILE * CHUNK),
          scores(TILE * CHUNK),
          products(TILE * CHUNK),
          out(TILE * D),
          out2(TILE * D) {}
};

void gather(const bf16* x, const Item& item, const std::vector<Stretch>& stretches, const Shape& shape, int64_t share,
            bf16* to) {
    for (int64_t r = 0; r < item.rows; r++)
        std::memcpy(to + r * shape.D,
                    row_of(x, stretches[item.stretch], item.begin + r, item.head, shape.H_kv, share, shape.D),
                    shape.D * sizeof(bf16));
}

void scatter(const float* from, const Item& item, const std::vector<Stretch>& stretches, const Shape& shape,
             int64_t share, bf16* x) {
    for (int64_t r = 0; r < item.rows; r++) {
        bf16* to = const_cast<bf16*>(
            row_of(x, stretches[item.stretch], item.begin + r, item.head, shape.H_kv, share, shape.D));
        for (int64_t d = 0; d < shape.D; d++) to[d] = rounded<bf16>(from[r * shape.D + d]);
    }
}

int64_t whole(int64_t rows) { return (rows + BLOCK - 1) / BLOCK * BLOCK; }

// Masses and gradients of the scores that one row sees: p = e^(score scale - logsumexp), d = p (product - delta) scale.
// The two statistics are those of the row, or those of what it meets.
template <bool of_row>
void differentiate(float* scores, const float* products, const float* logsumexp, const float* delta, int64_t from,
                   int64_t to, int64_t n, float scale, bf16* p, bf16* d) {
    hide(scores, from, to, n);
    for (int64_t at = 0; at < n; at += BLOCK)
#pragma omp simd
        for (int64_t k = at; k < at + BLOCK; k++) {
            const int64_t i = of_row ? 0 : k;
            const float mass = exponential(scores[k] * scale - logsumexp[i]);
            p[k] = rounded<bf16>(mass);
            d[k] = rounded<bf16>(mass * (products[k] - delta[i]) * scale);
        }
}

std::vector<Stretch> read(const int32_t* numbers, int64_t count) {
    std::vector<Stretch> stretches(count);
    std::memcpy(stretches.data(), numbers, count * sizeof(Stretch));
    return stretches;
}

}  // namespace

// out (T, H, D) = attention of query (T, H, D) to key and value (T, H_kv, D). A stretch is four numbers: its first
// token, how many there are, the number of its parent, or -1, and the position of the first. logsumexp (T, H) is that
// of the scaled scores.
extern "C" void packed_attend(const bf16* query, const bf16* key, const bf16* value, bf16* out, float* logsumexp,
                              const int32_t* numbers, int64_t count, int64_t T, int64_t H, int64_t H_kv, int64_t D,
                              float scale, int64_t window, int threads) {
    const Shape shape{T, H, H_kv, D, scale, window, threads};
    const std::vector<Stretch> stretches = read(numbers, count);
    Side keys(stretches, 1, D);
    keys.keys = placed(key, keys, stretches, shape, place_key);
    keys.values = placed(value, keys, stretches, shape, place_value);
    const std::vector<Item> items = items_of(stretches, H_kv, shape.share());
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
            gather(query, item, stretches, shape, shape.share(), work.rows.data());
            for (const Part& part : seen(item, stretches, shape)) {
                const int64_t place = keys.place(part.stretch, item.head) + part.begin * D, n = whole(part.rows);
                score(work.rows.data(), int(item.rows), keys.keys.get() + place, BLOCK * D, D, n, work.scores.data(),
                      work.nothing);
                for (int64_t r = 0; r < item.rows; r++) {
                    hide(work.scores.data() + r * CHUNK, part.from[r], part.to[r], n);
                    weigh(work.scores.data() + r * CHUNK, n, scale, D, top[r], total[r], work.masses.data() + r * CHUNK,
                          work.out.data() + r * D, work.nothing);
                }
                mix(work.masses.data(), int(item.rows), keys.values.get() + place, BLOCK * D, D, n, work.out.data(),
                    work.nothing);
            }
            for (int64_t r = 0; r < item.rows; r++) {
                for (int64_t d = 0; d < D; d++) work.out[r * D + d] /= total[r];
                const int64_t token = stretches[item.stretch].start + (item.begin + r) / shape.share();
                logsumexp[token * H + item.head * shape.share() + (item.begin + r) % shape.share()] =
                    top[r] + std::log(total[r]);
            }
            scatter(work.out.data(), item, stretches, shape, shape.share(), out);
        }
    }
}

// The gradients of query, key and value, given that of `out`, `grad`.
extern "C" void packed_backward(const bf16* query, const bf16* key, const bf16* value, const bf16* out,
                                const bf16* grad, const float* logsumexp, bf16* grad_query, bf16* grad_key,
                                bf16* grad_value, const int32_t* numbers, int64_t count, int64_t T, int64_t H,
                                int64_t H_kv, int64_t D, float scale, int64_t window, int threads) {
    const Shape shape{T, H, H_kv, D, scale, window, threads};
    const int64_t share = shape.share();
    const std::vector<Stretch> stretches = read(numbers, count);
    std::vector<std::vector<int64_t>> children(count);
    for (int64_t s = 0; s < count; s++)
        if (stretches[s].parent >= 0) children[stretches[s].parent].push_back(s);
    Side keys(stretches, 1, D), values(stretches, 1, D), queries(stretches, share, D), grads(stretches, share, D);
    keys.keys = placed(key, keys, stretches, shape, place_key);
    keys.values = placed(key, keys, stretches, shape, place_value);
    values.keys = placed(value, values, stretches, shape, place_key);
    queries.keys = placed(query, queries, stretches, shape, place_key);
    queries.values = placed(query, queries, stretches, shape, place_value);
    grads.keys = placed(grad, grads, stretches, shape, place_key);
    grads.values = placed(grad, grads, stretches, shape, place_value);
    // Two statistics of every query row, in the order of the side.
    std::vector<float> sums(H_kv * queries.blocks * BLOCK), deltas(H_kv * queries.blocks * BLOCK);
    const std::vector<Item> query_items = items_of(stretches, H_kv, share), key_items = items_of(stretches, H_kv, 1);
#pragma omp parallel num_threads(threads)
    {
        Tiles tiles;
        Work work(D);
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < query_items.size(); i++) {
            const Item& item = query_items[i];
            const int64_t place = queries.place(item.stretch, item.head) / D + item.begin;
            for (int64_t r = 0; r < item.rows; r++) {
                const bf16* o = row_of(out, stretches[item.stretch], item.begin + r, item.head, H_kv, share, D);
                const bf16* g = grad + (o - out);
                float delta = 0;
#pragma omp simd reduction(+ : delta)
                for (int64_t d = 0; d < D; d++) delta += number(o[d]) * number(g[d]);
                sums[place + r] = logsumexp[(o - out) / D];
                deltas[place + r] = delta;
            }
            std::fill(work.out.begin(), work.out.end(), 0.0f);
            gather(query, item, stretches, shape, share, work.rows.data());
            gather(grad, item, stretches, shape, share, work.other.data());
            for (const Part& part : seen(item, stretches, shape)) {
                const int64_t at = keys.place(part.stretch, item.head) + part.begin * D, n = whole(part.rows);
                score(work.rows.data(), int(item.rows), keys.keys.get() + at, BLOCK * D, D, n, work.scores.data(),
                      work.nothing);
                score(work.other.data(), int(item.rows), values.keys.get() + at, BLOCK * D, D, n, work.products.data(),
                      work.nothing);
                for (int64_t r = 0; r < item.rows; r++)
                    differentiate<true>(work.scores.data() + r * CHUNK, work.products.data() + r * CHUNK,
                                        &sums[place + r], &deltas[place + r], part.from[r], part.to[r], n, scale,
                                        work.masses.data() + r * CHUNK, work.more.data() + r * CHUNK);
                mix(work.more.data(), int(item.rows), keys.values.get() + at, BLOCK * D, D, n, work.out.data(),
                    work.nothing);
            }
            scatter(work.out.data(), item, stretches, shape, share, grad_query);
        }
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < key_items.size(); i++) {
            const Item& item = key_items[i];
            std::fill(work.out.begin(), work.out.end(), 0.0f);
            std::fill(work.out2.begin(), work.out2.end(), 0.0f);
            gather(key, item, stretches, shape, 1, work.rows.data());
            gather(value, item, stretches, shape, 1, work.other.data());
            for (const Part& part : seers(item, stretches, children, shape)) {
                const int64_t at = queries.place(part.stretch, item.head) + part.begin * D, n = whole(part.rows);
                score(work.rows.data(), int(item.rows), queries.keys.get() + at, BLOCK * D, D, n, work.scores.data(),
                      work.nothing);
                score(work.other.data(), int(item.rows), grads.keys.get() + at, BLOCK * D, D, n, work.products.data(),
                      work.nothing);
                for (int64_t r = 0; r < item.rows; r++)
                    differentiate<false>(work.scores.data() + r * CHUNK, work.products.data() + r * CHUNK,
                                         &sums[at / D], &deltas[at / D], part.from[r], part.to[r], n, scale,
                                         work.masses.data() + r * CHUNK, work.more.data() + r * CHUNK);
                mix(work.more.data(), int(item.rows), queries.values.get() + at, BLOCK * D, D, n, work.out.data(),
                    work.nothing);
                mix(work.masses.data(), int(item.rows), grads.values.get() + at, BLOCK * D, D, n, work.out2.data(),
                    work.nothing);
            }
            scatter(work.out.data(), item, stretches, shape, 1, grad_key);
            scatter(work.out2.data(), item, stretches, shape, 1, grad_value);
        }
    }
}
#endif
