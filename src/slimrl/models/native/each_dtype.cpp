// The kernels for both float32 and bfloat16. The name of each kernel has a suffix for the dtype.
#include <algorithm>
#include <cmath>
#include <vector>

#include "rows.h"

namespace {

constexpr int64_t PIECE = 4096;  // weights that a thread updates at a time
constexpr int64_t BLOCK = 512;   // tokens whose probability mass is summed in float32

// The numbers of one update of AdamW (1711.05101). `mean_left` and `square_left` are 1 - beta^t;
// the gradient is multiplied by `clip`.
struct AdamW {
    float lr, beta1, beta2, eps, decay, clip, mean_left, square_left;
};

}  // namespace

#define T float
#define NAME(name) name##_f32
#include "layers.inc"
#include "sampling.inc"
#include "training.inc"
#undef T
#undef NAME

#define T bf16
#define NAME(name) name##_bf16
#include "layers.inc"
#include "sampling.inc"
#include "training.inc"
