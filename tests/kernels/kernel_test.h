// What the kernel tests share: arrays of any activation type with guard zones,
// running a kernel in any order of items, and the instruction sets to test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "kernels/cpu_kernel.h"

namespace forge::test {

inline std::vector<Isa> isas() {
    std::vector<Isa> found;
    for (const Isa isa : {Isa::plain, Isa::avx2, Isa::avx512, Isa::neon})
        if (isa_available(isa)) found.push_back(isa);
    return found;
}

inline const std::vector<DType>& types() {
    static const std::vector<DType> all = {DType::bf16, DType::f16, DType::f32};
    return all;
}

// FORGE_LONG=1 runs the large grids.
inline bool long_tests() {
    const char* value = std::getenv("FORGE_LONG");
    return value != nullptr && *value == '1';
}

// Half an ulp, relative.
inline double unit_roundoff(DType type) {
    return type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : 0x1p-24;
}

inline float rounded(DType type, float x) {
    return type == DType::bf16 ? round_to<bf16>(x) : type == DType::f16 ? round_to<f16>(x) : x;
}

// `count` elements of `type`, all NaN at first, between guard zones that check() inspects.
class Array {
  public:
    Array(DType type, std::size_t count) : type_(type), bytes_(count * size_of(type)), raw_(bytes_ + 2 * kGuard + 64, 0xA5) {
        at_ = kGuard;
        while (reinterpret_cast<std::uintptr_t>(raw_.data() + at_) % 64 != 0) ++at_;
        std::memset(raw_.data() + at_, 0xff, bytes_);  // all ones is a NaN in every type
    }
    Array(DType type, const std::vector<float>& values) : Array(type, values.size()) {
        for (std::size_t i = 0; i < values.size(); ++i) set(i, values[i]);
    }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;
    ~Array() { check(); }

    void* data() { return raw_.data() + at_; }
    float* floats() { return static_cast<float*>(data()); }
    std::size_t bytes() const { return bytes_; }
    void set(std::size_t i, float x) {
        unsigned char* p = raw_.data() + at_ + i * size_of(type_);
        if (type_ == DType::f32) std::memcpy(p, &x, 4);
        else {
            const std::uint16_t h = type_ == DType::bf16 ? f32_to_bf16(x) : f32_to_f16(x);
            std::memcpy(p, &h, 2);
        }
    }
    float get(std::size_t i) const {
        const unsigned char* p = raw_.data() + at_ + i * size_of(type_);
        float x;
        std::uint16_t h;
        if (type_ == DType::f32) return std::memcpy(&x, p, 4), x;
        std::memcpy(&h, p, 2);
        return type_ == DType::bf16 ? bf16_to_f32(h) : f16_to_f32(h);
    }
    std::vector<unsigned char> copy() const { return {raw_.begin() + static_cast<std::ptrdiff_t>(at_), raw_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes_)}; }
    void check() const {
        for (std::size_t i = 0; i < raw_.size(); ++i)
            if ((i < at_ || i >= at_ + bytes_) && raw_[i] != 0xA5) {
                ADD_FAILURE() << "wrote outside an array, at byte " << static_cast<long>(i) - static_cast<long>(at_) << " of " << bytes_;
                return;
            }
    }

  private:
    static constexpr std::size_t kGuard = 256;
    DType type_;
    std::size_t bytes_, at_ = 0;
    std::vector<unsigned char> raw_;
};

// How items are handed out: one call, one at a time backwards, or in random ranges in random order.
enum class Split { whole, backwards, random };

template <typename Params>
void run(const CpuKernel& kernel, const Params& params, const StepRows& step, Split split = Split::whole,
         unsigned seed = 1) {
    ASSERT_NE(kernel.fn, nullptr);
    const std::int64_t items = kernel.items(&params, step);
    Array scratch(DType::u8, kernel.scratch);
    CpuWorker worker;
    worker.scratch = {static_cast<std::byte*>(scratch.data()), kernel.scratch};
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
    if (split == Split::whole) ranges.push_back({0, items});
    if (split == Split::backwards)
        for (std::int64_t i = items; i-- > 0;) ranges.push_back({i, i + 1});
    if (split == Split::random) {
        std::mt19937 rng(seed);
        for (std::int64_t i = 0; i < items;) {
            const std::int64_t end = std::min<std::int64_t>(items, i + 1 + static_cast<std::int64_t>(rng() % 5));
            ranges.push_back({i, end});
            i = end;
        }
        std::shuffle(ranges.begin(), ranges.end(), rng);
    }
    for (const auto& [first, last] : ranges) kernel.fn(&params, step, first, last, worker);
}

// A step's arrays.
struct Rows {
    std::vector<std::int32_t> tokens, slots, positions, outputs;
    // `count` rows of a slot from `position` on.
    Rows& add(int slot, int position, int count) {
        for (int i = 0; i < count; ++i) {
            tokens.push_back(0);
            slots.push_back(slot);
            positions.push_back(position + i);
        }
        return *this;
    }
    StepRows step() const {
        StepRows s;
        s.m = static_cast<int>(positions.size());
        s.tokens = tokens.data();
        s.slots = slots.data();
        s.positions = positions.data();
        s.outputs = static_cast<int>(outputs.size());
        s.output_rows = outputs.data();
        s.serial = 1;
        return s;
    }
};

// Normal values, rounded to `type`.
inline std::vector<float> normal(std::size_t count, DType type, unsigned seed, float deviation = 1) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> d(0, deviation);
    std::vector<float> out(count);
    for (float& x : out) x = rounded(type, d(rng));
    return out;
}

}  // namespace forge::test
