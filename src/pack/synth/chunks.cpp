#include "chunks.h"

#include <algorithm>
#include <cstring>

#include "base/float16.h"
#include "pack/gguf_encode.h"

namespace forge::synth {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t z = a + (b + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

std::vector<float> chunk_pool(std::uint64_t seed, ThreadPool& threads) {
    std::vector<float> pool(chunk_count * chunk_values);
    const std::uint64_t key = mix(seed, 0xc0);
    threads.parallel_for(chunk_count, 64, [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first * chunk_values; i < last * chunk_values; ++i) {
            // The sum of twelve uniform numbers has variance 1 and is close to normal.
            std::int32_t sum = 0;
            for (std::uint64_t part = 0; part < 3; ++part) {
                const std::uint64_t word = mix(key, 3 * i + part);
                for (int shift = 0; shift < 64; shift += 16)
                    sum += static_cast<std::int32_t>((word >> shift) & 0xffff);
            }
            const std::int32_t centred = 2 * sum - 12 * 0xffff;
            pool[i] = static_cast<float>(centred) * (0.02f / 131072.0f);
        }
    });
    return pool;
}

EncodedChunks::EncodedChunks(const std::vector<float>& pool, GgufType type, ThreadPool& threads) {
    const BlockSize block = gguf_block_size(static_cast<std::uint32_t>(type)).value();
    chunk_bytes_ = static_cast<std::size_t>(chunk_values / block.elements * block.bytes);
    bytes_.resize(chunk_count * chunk_bytes_);
    threads.parallel_for(chunk_count, 16, [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i)
            encode_gguf_row(type, pool.data() + i * chunk_values, chunk_values,
                            bytes_.data() + i * chunk_bytes_);
    });
}

MlxChunks::MlxChunks(const std::vector<float>& pool, const MlxFormat& format, ThreadPool& threads) {
    const MlxRowBytes bytes = mlx_row_bytes(format, chunk_values, DType::bf16);
    std::vector<std::byte> codes(chunk_count * bytes.codes), scales(chunk_count * bytes.scales), biases(chunk_count * bytes.biases);
    threads.parallel_for(chunk_count, 16, [&](std::size_t first, std::size_t last) {
        float row[chunk_values];
        for (std::size_t i = first; i < last; ++i) {
            for (int e = 0; e < chunk_values; ++e) row[e] = round_to<bf16>(pool[i * chunk_values + static_cast<std::size_t>(e)]);
            encode_mlx_row(format, DType::bf16, row, codes.data() + i * bytes.codes, scales.data() + i * bytes.scales, biases.data() + i * bytes.biases);
        }
    });
    planes.emplace_back(bytes.codes, std::move(codes));
    planes.emplace_back(bytes.scales, std::move(scales));
    if (bytes.biases > 0) planes.emplace_back(bytes.biases, std::move(biases));
}

void EncodedChunks::copy_row(std::uint64_t key, std::int64_t row, std::int64_t cols, std::byte* out) const {
    const auto r = static_cast<std::uint64_t>(row);
    const std::uint64_t row_key = mix(key, r / chunk_count);
    std::size_t left = row_bytes(cols);
    for (std::uint64_t place = 0; left > 0; ++place) {
        // An odd multiplier makes row -> chunk a permutation of the pool.
        const std::uint64_t hash = mix(row_key, place);
        const std::uint64_t chunk = (r * (hash | 1) + (hash >> 40)) % chunk_count;
        const std::size_t part = std::min(left, chunk_bytes_);
        std::memcpy(out, bytes_.data() + chunk * chunk_bytes_, part);
        out += part;
        left -= part;
    }
}

}  // namespace forge::synth
