// bfloat16 as a type, with its conversions, and an exponential that compilers turn into vector instructions.
#pragma once
#include <cstdint>
#include <cstring>

struct bf16 {
    uint16_t bits;
};

inline float to_float(float x) { return x; }

inline float to_float(bf16 x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float from_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Rounds to nearest, ties to even. NaN stays NaN.
template <class T>
T round_to(float x);

template <>
inline float round_to<float>(float x) {
    return x;
}

template <>
inline bf16 round_to<bf16>(float x) {
    uint32_t bits = bits_of(x);
    uint32_t nearest = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return {uint16_t(x == x ? nearest : 0x7fc0)};
}

// e^x to 2 units in the last place (Cephes' expf); 0 below -87, and clamped above 88.
inline float fast_exp(float x) {
    float clamped = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = (clamped * 1.44269504f + 12582912.0f) - 12582912.0f;  // adding 1.5 * 2^23 rounds to an integer
    float r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    float value = (p * r * r + r + 1.0f) * from_bits(uint32_t(int32_t(n) + 127) << 23);
    return x < -87.0f ? 0.0f : x == x ? value : x;
}

inline float sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }
