// What is done to one row of numbers, by kernels that go over whole tensors and by the one that goes through layers.
#pragma once
#include <cmath>

#include "numbers.h"

// y = w (x / rms(x)), the quotient rounded first as transformers does. Returns 1 / rms(x).
template <class T>
float norm_row(const T* x, const T* w, float eps, int64_t D, T* y) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t d = 0; d < D; d++) sum += number(x[d]) * number(x[d]);
    const float scale = 1.0f / std::sqrt(sum / D + eps);
    for (int64_t d = 0; d < D; d++) y[d] = rounded<T>(number(rounded<T>(number(x[d]) * scale)) * number(w[d]));
    return scale;
}

// (a, b) -> (a cos - b sin, b cos + a sin) for the halves a, b of one head; `sign` -1 turns back. In place if y is x.
template <class T>
void rotate_head(const T* x, const T* cosines, const T* sines, float sign, int64_t D, T* y) {
    const int64_t half = D / 2;
#pragma omp simd
    for (int64_t d = 0; d < half; d++) {
        const float a = number(x[d]), b = number(x[d + half]), c = number(cosines[d]), s = number(sines[d]) * sign;
        y[d] = rounded<T>(a * c - b * s);
        y[d + half] = rounded<T>(b * c + a * s);
    }
}
