/* Loads of numbers that may lie anywhere, half floats, exp, and the activation of the experts. */
#ifndef NUMBERS_H
#define NUMBERS_H

#include <stdint.h>
#include <wasm_simd128.h>

#define INLINE static inline __attribute__((always_inline))
/* A function of its own: the engine's register allocator spills less in small functions. */
#define APART static __attribute__((noinline))
#define UNROLL _Pragma("clang loop unroll(full)")

typedef struct { uint16_t value; } __attribute__((packed)) loose_u16;
typedef struct { uint32_t value; } __attribute__((packed)) loose_u32;
INLINE uint16_t load_u16(const uint8_t *at) { return ((const loose_u16 *)at)->value; }
INLINE uint32_t load_u32(const uint8_t *at) { return ((const loose_u32 *)at)->value; }

INLINE float float_of_bits(uint32_t bits) {
    union { uint32_t bits; float value; } both = {bits};
    return both.value;
}

INLINE uint32_t bits_of_float(float value) {
    union { float value; uint32_t bits; } both = {value};
    return both.bits;
}

/* Half to single precision, exactly: subnormals, infinities and NaN too. */
INLINE float float_of_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = (uint32_t)(half & 0x7fff) << 13;
    if ((half & 0x7c00) == 0x7c00) return float_of_bits(sign | rest | 0x7f800000);
    return float_of_bits(sign | bits_of_float(float_of_bits(rest) * 0x1p112f));
}

/* Single to half precision, to the nearest, ties to even. */
INLINE uint16_t half_of_float(float value) {
    uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (rest >= 0x47800000) return (uint16_t)(sign | 0x7c00);
    if (rest < 0x38800000) /* subnormal: let the adder round at the right place */
        return (uint16_t)(sign | (bits_of_float(float_of_bits(rest) + 0.5f) - bits_of_float(0.5f)));
    return (uint16_t)(sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
}

INLINE float bfloat_rounded(float value) {
    uint32_t bits = bits_of_float(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return float_of_bits((bits | 0x400000) & 0xffff0000);
    return float_of_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

/* Four halves, widened to u32, to single precision. */
INLINE v128_t floats_of_halves(v128_t halves) {
    v128_t rest = wasm_v128_and(halves, wasm_i32x4_const_splat(0x7fff));
    v128_t value = wasm_f32x4_mul(wasm_i32x4_shl(rest, 13), wasm_f32x4_const_splat(0x1p112f));
    v128_t huge = wasm_i32x4_gt(rest, wasm_i32x4_const_splat(0x7bff));
    value = wasm_v128_or(value, wasm_v128_and(huge, wasm_i32x4_const_splat(0x7f800000)));
    return wasm_v128_or(value, wasm_i32x4_shl(wasm_v128_and(halves, wasm_i32x4_const_splat(0x8000)), 16));
}

/* The same for finite ones only: scales of blocks. */
INLINE v128_t floats_of_scales(v128_t halves) {
    v128_t value = wasm_i32x4_shr(wasm_i32x4_shl(halves, 16), 3);
    return wasm_f32x4_mul(wasm_v128_and(value, wasm_i32x4_const_splat((int32_t)0x8fffe000)), wasm_f32x4_const_splat(0x1p112f));
}

INLINE float scale_of_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = (uint32_t)(half & 0x7fff) << 13;
    return float_of_bits(sign | bits_of_float(float_of_bits(rest) * 0x1p112f));
}

INLINE float sum_of_lanes(v128_t v) {
    v = wasm_f32x4_add(v, wasm_i32x4_shuffle(v, v, 2, 3, 0, 1));
    return wasm_f32x4_extract_lane(v, 0) + wasm_f32x4_extract_lane(v, 1);
}

/* e^x within 2 units in the last place for |x| < 87.3; beyond that the nearest value of that range.
   Polynomial: Arm's optimized routines, as in ggml's ggml_v_expf. */
INLINE v128_t exp_of(v128_t x) {
    x = wasm_f32x4_min(wasm_f32x4_max(x, wasm_f32x4_const_splat(-87.3f)), wasm_f32x4_const_splat(87.3f));
    v128_t magic = wasm_f32x4_const_splat(0x1.8p23f);
    v128_t z = wasm_f32x4_add(wasm_f32x4_mul(x, wasm_f32x4_const_splat(0x1.715476p+0f)), magic);
    v128_t n = wasm_f32x4_sub(z, magic);
    v128_t b = wasm_f32x4_sub(x, wasm_f32x4_mul(n, wasm_f32x4_const_splat(0x1.62e4p-1f)));
    b = wasm_f32x4_sub(b, wasm_f32x4_mul(n, wasm_f32x4_const_splat(0x1.7f7d1cp-20f)));
    v128_t power = wasm_i32x4_add(wasm_i32x4_shl(z, 23), wasm_f32x4_const_splat(1.0f));
    v128_t u = wasm_f32x4_mul(b, b);
    v128_t low = wasm_f32x4_add(wasm_f32x4_mul(wasm_f32x4_const_splat(0x1.573e2ep-5f), b), wasm_f32x4_const_splat(0x1.555e66p-3f));
    v128_t high = wasm_f32x4_add(wasm_f32x4_mul(wasm_f32x4_const_splat(0x1.0e4020p-7f), u), low);
    v128_t rest = wasm_f32x4_add(wasm_f32x4_mul(high, b), wasm_f32x4_const_splat(0x1.fffdb6p-2f));
    rest = wasm_f32x4_add(wasm_f32x4_mul(rest, u), wasm_f32x4_mul(wasm_f32x4_const_splat(0x1.ffffecp-1f), b));
    return wasm_f32x4_add(power, wasm_f32x4_mul(rest, power));
}

/* gate[i] = silu(gate[i]) * up[i]; count is a multiple of 4. */
static void swiglu(float *gate, const float *up, uint32_t count) {
    v128_t one = wasm_f32x4_const_splat(1.0f);
    for (uint32_t i = 0; i < count; i += 4) {
        v128_t x = wasm_v128_load(gate + i);
        v128_t silu = wasm_f32x4_div(x, wasm_f32x4_add(one, exp_of(wasm_f32x4_neg(x))));
        wasm_v128_store(gate + i, wasm_f32x4_mul(silu, wasm_v128_load(up + i)));
    }
}

#endif
