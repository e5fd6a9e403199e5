// Single precision in memory, products in TF32. See lower/attention.rs for the names defined before, and
// attention_half.cu for how warps are split.
__device__ __forceinline__ unsigned NAME_tf32(float x) {
    unsigned out;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(out) : "f"(x));
    return out;
}
__device__ __forceinline__ void NAME_mma(float* c, const unsigned* a, unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
extern "C" __global__ void __launch_bounds__(128) NAME(const T* __restrict__ q, const T* __restrict__ k,
        const T* __restrict__ v, MASK_PARAMETER T* __restrict__ out) {
    const int PITCH = D + 4, SPLIT = 4 / WARP_ROWS, NT = 8 / SPLIT;
    __shared__ __align__(16) float tile[2 * 64 * (D + 4)];
    float* ks = tile;
    float* vs = tile + 64 * PITCH;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const int wr = warp % WARP_ROWS, wk = warp / WARP_ROWS, keys = wk * NT * 8;
    const int a = blockIdx.y / HEADS, h = blockIdx.y % HEADS, row = (blockIdx.x * WARP_ROWS + wr) * 16;
    const T* qp = q + a * QA + h * QH;
    const T* kp = k + a * KA + h * KH;
    const T* vp = v + a * VA + h * VH;
    const int r0 = min(row + g, ROWS - 1), r1 = min(row + g + 8, ROWS - 1);
    unsigned qa[D / 8][4];
    #pragma unroll
    for (int i = 0; i < D / 8; ++i) {
        qa[i][0] = NAME_tf32(qp[r0 * QR + (i * 8 + t) * QD] * SCALE);
        qa[i][1] = NAME_tf32(qp[r1 * QR + (i * 8 + t) * QD] * SCALE);
        qa[i][2] = NAME_tf32(qp[r0 * QR + (i * 8 + t + 4) * QD] * SCALE);
        qa[i][3] = NAME_tf32(qp[r1 * QR + (i * 8 + t + 4) * QD] * SCALE);
    }
    float o[D / 8][4];
    #pragma unroll
    for (int i = 0; i < D / 8; ++i) { o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.f; }
    float m0 = -INFINITE, m1 = -INFINITE, l0 = 0.f, l1 = 0.f;
    for (int base = 0; base < KEYS; base += 64) {
        __syncthreads();
        for (int i = threadIdx.x; i < 64 * (D / 4); i += 128) {
            const int key = i / (D / 4), d = (i % (D / 4)) * 4, from = base + key;
            const bool inside = from < KEYS;
            Pack<float, 4> kk, vv;
#if WIDE
            const int at = inside ? from : 0;
            kk = *(const Pack<float, 4>*)(kp + at * KR + d);
            vv = *(const Pack<float, 4>*)(vp + at * VR + d);
#else
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                kk.at[j] = inside ? kp[from * KR + (d + j) * KD] : 0.f;
                vv.at[j] = inside ? vp[from * VR + (d + j) * VD] : 0.f;
            }
#endif
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                kk.at[j] = inside ? __int_as_float(NAME_tf32(kk.at[j])) : 0.f;
                vv.at[j] = inside ? __int_as_float(NAME_tf32(vv.at[j])) : 0.f;
            }
            *(Pack<float, 4>*)(ks + key * PITCH + d) = kk;
            *(Pack<float, 4>*)(vs + key * PITCH + d) = vv;
        }
        __syncthreads();
        float s[NT][4];
        #pragma unroll
        for (int n = 0; n < NT; ++n) {
            s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.f;
            const float* kk = ks + (keys + n * 8 + g) * PITCH;
            #pragma unroll
            for (int i = 0; i < D / 8; ++i) {
                NAME_mma(s[n], qa[i], __float_as_int(kk[i * 8 + t]), __float_as_int(kk[i * 8 + t + 4]));
            }
        }
        float n0 = m0, n1 = m1;
        #pragma unroll
        for (int n = 0; n < NT; ++n) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                const int key = base + keys + n * 8 + 2 * t + j;
                const bool inside = key < KEYS;
                s[n][j] = inside ? s[n][j] + MASK(a, h, r0, key) : -INFINITE;
                s[n][2 + j] = inside ? s[n][2 + j] + MASK(a, h, r1, key) : -INFINITE;
                n0 = fmaxf(n0, s[n][j]);
                n1 = fmaxf(n1, s[n][2 + j]);
            }
        }
        n0 = fmaxf(n0, __shfl_xor_sync(0xffffffffu, n0, 1)); n0 = fmaxf(n0, __shfl_xor_sync(0xffffffffu, n0, 2));
        n1 = fmaxf(n1, __shfl_xor_sync(0xffffffffu, n1, 1)); n1 = fmaxf(n1, __shfl_xor_sync(0xffffffffu, n1, 2));
        const float z0 = n0 == -INFINITE ? 0.f : n0, z1 = n1 == -INFINITE ? 0.f : n1;
        const float f0 = exp2f(m0 - z0), f1 = exp2f(m1 - z1);
        m0 = n0; m1 = n1;
        l0 *= f0; l1 *= f1;
        #pragma unroll
        for (int i = 0; i < D / 8; ++i) { o[i][0] *= f0; o[i][1] *= f0; o[i][2] *= f1; o[i][3] *= f1; }
        #pragma unroll
        for (int n = 0; n < NT; ++n) {
            unsigned p[4];
            const float p0 = exp2f(s[n][0] - z0), p1 = exp2f(s[n][1] - z0);
            const float p2 = exp2f(s[n][2] - z1), p3 = exp2f(s[n][3] - z1);
            l0 += p0 + p1; l1 += p2 + p3;
            // Column t of the product's left operand is key 2t, column t + 4 key 2t + 1.
            p[0] = NAME_tf32(p0); p[1] = NAME_tf32(p2); p[2] = NAME_tf32(p1); p[3] = NAME_tf32(p3);
            const float* v0 = vs + (keys + n * 8 + 2 * t) * PITCH;
            #pragma unroll
            for (int i = 0; i < D / 8; ++i) {
                NAME_mma(o[i], p, __float_as_int(v0[i * 8 + g]), __float_as_int(v0[PITCH + i * 8 + g]));
            }
        }
    }
    l0 += __shfl_xor_sync(0xffffffffu, l0, 1); l0 += __shfl_xor_sync(0xffffffffu, l0, 2);
    l1 += __shfl_xor_sync(0xffffffffu, l1, 1); l1 += __shfl_xor_sync(0xffffffffu, l1, 2);
    T* op = out + a * OA + h * OH;
#if WARP_ROWS == 4
    #pragma unroll
    for (int i = 0; i < D / 8; ++i) {
        const int d = i * 8 + 2 * t;
        if (row + g < ROWS) {
            op[(row + g) * OR + d * OD] = (o[i][0] / l0);
            op[(row + g) * OR + (d + 1) * OD] = (o[i][1] / l0);
        }
        if (row + g + 8 < ROWS) {
            op[(row + g + 8) * OR + d * OD] = (o[i][2] / l1);
            op[(row + g + 8) * OR + (d + 1) * OD] = (o[i][3] / l1);
        }
    }
#else
    // The warps' shares of the keys, joined.
    __shared__ float most[4][16], sums[4][16];
    __syncthreads();
    if (t == 0) { most[warp][g] = m0; most[warp][g + 8] = m1; sums[warp][g] = l0; sums[warp][g + 8] = l1; }
    float* os = tile;
    #pragma unroll
    for (int i = 0; i < D / 8; ++i) {
        os[(warp * 16 + g) * D + i * 8 + 2 * t] = o[i][0];
        os[(warp * 16 + g) * D + i * 8 + 2 * t + 1] = o[i][1];
        os[(warp * 16 + g + 8) * D + i * 8 + 2 * t] = o[i][2];
        os[(warp * 16 + g + 8) * D + i * 8 + 2 * t + 1] = o[i][3];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < WARP_ROWS * 16 * D; i += 128) {
        const int w0 = i / (16 * D), r = (i / D) % 16, d = i % D;
        const int at = (blockIdx.x * WARP_ROWS + w0) * 16 + r;
        if (at >= ROWS) continue;
        float top = -INFINITE;
        #pragma unroll
        for (int w = 0; w < SPLIT; ++w) top = fmaxf(top, most[w * WARP_ROWS + w0][r]);
        const float z = top == -INFINITE ? 0.f : top;
        float sum = 0.f, value = 0.f;
        #pragma unroll
        for (int w = 0; w < SPLIT; ++w) {
            const int from = w * WARP_ROWS + w0;
            const float f = exp2f(most[from][r] - z);
            sum += f * sums[from][r];
            value += f * os[(from * 16 + r) * D + d];
        }
        op[at * OR + d * OD] = (value / sum);
    }
#endif
}
