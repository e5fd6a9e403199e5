// What every generated kernel begins with: element types without any header, conversions, block sums.
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct boolean { unsigned char bits; };
#define INFINITE __int_as_float(0x7f800000)
#define NOT_A_NUMBER __int_as_float(0x7fffffff)

template <typename T> struct Stored { typedef T computed; };
template <> struct Stored<f16> { typedef float computed; };
template <> struct Stored<bf16> { typedef float computed; };
template <> struct Stored<boolean> { typedef bool computed; };

template <typename T> __device__ __forceinline__ T load(T v) { return v; }
__device__ __forceinline__ float load(f16 v) {
    float out;
    asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(v.bits));
    return out;
}
__device__ __forceinline__ float load(bf16 v) { return __int_as_float(((int)v.bits) << 16); }
__device__ __forceinline__ bool load(boolean v) { return v.bits != 0; }

template <typename T, typename C> struct Convert {
    static __device__ __forceinline__ T to(C v) { return (T)v; }
};
template <typename C> struct Convert<f16, C> {
    static __device__ __forceinline__ f16 to(C v) {
        f16 out;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"((float)v));
        return out;
    }
};
template <typename C> struct Convert<bf16, C> {
    static __device__ __forceinline__ bf16 to(C v) {
        bf16 out;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"((float)v));
        return out;
    }
};
template <typename C> struct Convert<boolean, C> {
    static __device__ __forceinline__ boolean to(C v) {
        boolean out;
        out.bits = v ? 1 : 0;
        return out;
    }
};
template <typename T, typename C> __device__ __forceinline__ T store(C v) { return Convert<T, C>::to(v); }

template <typename T, int N> struct __align__(sizeof(T) * N) Pack { T at[N]; };

__device__ __forceinline__ float warp_sum(float v) {
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}
__device__ __forceinline__ float warp_max(float v) {
    for (int step = 16; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
    return v;
}
// A maximum that keeps a NaN, as the reference does.
__device__ __forceinline__ float max_nan(float a, float b) { return (a > b || a != a) ? a : b; }
__device__ __forceinline__ float relu(float x) { return x < 0.f ? 0.f : x; }
