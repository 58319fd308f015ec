// Operations on one row. The kernels on whole tensors and the kernel of all layers (`decoder.cpp`) use them.
#pragma once
#include <cmath>

#include "bf16.h"

// Computes y = w (x / rms(x)). The quotient is rounded first, as in transformers. Returns 1 / rms(x).
template <class T>
float norm_row(const T* x, const T* w, float eps, int64_t D, T* y) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t d = 0; d < D; d++) sum += to_float(x[d]) * to_float(x[d]);
    const float scale = 1.0f / std::sqrt(sum / D + eps);
    for (int64_t d = 0; d < D; d++) y[d] = round_to<T>(to_float(round_to<T>(to_float(x[d]) * scale)) * to_float(w[d]));
    return scale;
}

// (a, b) -> (a cos - b sin, b cos + a sin) for the halves a, b of one head; `sign` -1 rotates by the opposite angle. y
// may be x.
template <class T>
void rotate_head(const T* x, const T* cosines, const T* sines, float sign, int64_t D, T* y) {
    const int64_t half = D / 2;
#pragma omp simd
    for (int64_t d = 0; d < half; d++) {
        const float a = to_float(x[d]), b = to_float(x[d + half]), c = to_float(cosines[d]),
                    s = to_float(sines[d]) * sign;
        y[d] = round_to<T>(a * c - b * s);
        y[d + half] = round_to<T>(b * c + a * s);
    }
}
