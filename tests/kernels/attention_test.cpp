// Attention and its cache against double-precision references written here.
#include "kernels/attention/attention.h"

#include "kernel_test.h"

namespace forge::test {
namespace {

struct Shape {
    int n_heads, n_kv_heads, head_dim;
    float scale = 0;  // 0: head_dim^-0.5
    float softcap = 0;
    int window = 0;
    float sharpness = 1;  // deviation of q: large values make softmax pick single keys
    friend std::ostream& operator<<(std::ostream& out, const Shape& s) {
        return out << s.n_heads << "q/" << s.n_kv_heads << "kv/" << s.head_dim << " scale " << s.scale << " cap "
                   << s.softcap << " window " << s.window << " sharp " << s.sharpness;
    }
};

// A cache in which only the positions that some row may see are written; the rest is NaN.
struct Problem {
    Shape shape;
    DType type;
    Rows rows;
    int capacity, slots;
    std::vector<float> k, v;  // [slot][position][kv head][head_dim]
    std::vector<float> q;     // [m][n_heads * head_dim]
    Array keys, values;
    KvCache cache;

    Problem(const Shape& shape_, DType type_, const Rows& rows_, int capacity_, int slots_ = 1, unsigned seed = 7)
        : shape(shape_), type(type_), rows(rows_), capacity(capacity_), slots(slots_),
          keys(type_, kv_cache_bytes(capacity_, slots_, shape_.n_kv_heads, shape_.head_dim, type_) / size_of(type_)),
          values(type_, kv_cache_bytes(capacity_, slots_, shape_.n_kv_heads, shape_.head_dim, type_) / size_of(type_)) {
        if (shape.scale == 0) shape.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
        const auto d = static_cast<std::size_t>(shape.head_dim);
        const std::size_t all = static_cast<std::size_t>(slots * capacity * shape.n_kv_heads) * d;
        k = normal(all, type, seed);
        v = normal(all, type, seed + 1);
        q = normal(rows.positions.size() * static_cast<std::size_t>(shape.n_heads) * d, type, seed + 2, shape.sharpness);
        cache = {keys.data(), values.data(), capacity, slots, shape.n_kv_heads, shape.head_dim, type};
        std::vector<char> written(static_cast<std::size_t>(slots * capacity));
        for (std::size_t r = 0; r < rows.positions.size(); ++r) {
            const int position = rows.positions[r];
            for (int j = shape.window > 0 ? std::max(0, position - shape.window + 1) : 0; j <= position; ++j)
                written[static_cast<std::size_t>(rows.slots[r] * capacity + j)] = 1;
        }
        for (int slot = 0; slot < slots; ++slot)
            for (int j = 0; j < capacity; ++j)
                if (written[static_cast<std::size_t>(slot * capacity + j)])
                    for (int h = 0; h < shape.n_kv_heads; ++h)
                        for (const bool is_value : {false, true}) {
                            const std::vector<float>& from = is_value ? v : k;
                            const std::size_t at = index(slot, j, h);
                            Array one(type, std::vector<float>(from.begin() + static_cast<std::ptrdiff_t>(at),
                                                               from.begin() + static_cast<std::ptrdiff_t>(at + d)));
                            kv_write(cache, is_value, slot, h, j, one.data());
                        }
    }
    std::size_t index(int slot, int position, int head) const {
        return static_cast<std::size_t>((slot * capacity + position) * shape.n_kv_heads + head) *
               static_cast<std::size_t>(shape.head_dim);
    }

    AttentionParams params(Array& queries, Array& out) const {
        AttentionParams p;
        p.type = type;
        p.n_heads = shape.n_heads;
        p.n_kv_heads = shape.n_kv_heads;
        p.head_dim = shape.head_dim;
        p.q = queries.data();
        p.out = out.data();
        p.scale = shape.scale;
        p.softcap = shape.softcap;
        p.window = shape.window;
        p.cache = cache;
        p.max_rows = static_cast<int>(rows.positions.size());
        return p;
    }

    // The kernels' output as bytes.
    std::vector<unsigned char> decode(Isa isa, Split split = Split::whole) const {
        Array queries(type, q), out(type, q.size());
        AttentionParams p = params(queries, out);
        Array partial(DType::f32, attention_partial_bytes(p) / 4);
        p.partial = partial.floats();
        run(attention_decode_kernel(p, isa), p, rows.step(), split);
        run(attention_combine_kernel(p, isa), p, rows.step(), split);
        return out.copy();
    }
    std::vector<unsigned char> prefill(Isa isa, Split split = Split::whole) const {
        Array queries(type, q), out(type, q.size());
        const AttentionParams p = params(queries, out);
        run(attention_prefill_kernel(p, isa), p, rows.step(), split);
        return out.copy();
    }

    float element(const std::vector<unsigned char>& bytes, std::size_t i) const {
        if (type == DType::f32) {
            float x;
            std::memcpy(&x, bytes.data() + 4 * i, 4);
            return x;
        }
        std::uint16_t h;
        std::memcpy(&h, bytes.data() + 2 * i, 2);
        return type == DType::bf16 ? bf16_to_f32(h) : f16_to_f32(h);
    }

    // Every element within the bound that rounding the probabilities and the result allows.
    void compare(const std::vector<unsigned char>& bytes, const std::string& what) const {
        const int group = shape.n_heads / shape.n_kv_heads, d = shape.head_dim;
        const double u = unit_roundoff(type);
        double worst = 0;
        for (std::size_t r = 0; r < rows.positions.size(); ++r)
            for (int h = 0; h < shape.n_heads; ++h) {
                const int position = rows.positions[r], slot = rows.slots[r];
                const int begin = shape.window > 0 ? std::max(0, position - shape.window + 1) : 0;
                const std::size_t row = (r * static_cast<std::size_t>(shape.n_heads) + static_cast<std::size_t>(h)) * static_cast<std::size_t>(d);
                std::vector<double> s;
                double top = -1e300, total = 0, reach = 0;
                for (int j = begin; j <= position; ++j) {
                    const float* key = k.data() + index(slot, j, h / group);
                    double sum = 0, sizes = 0;
                    for (int e = 0; e < d; ++e) {
                        const double product = static_cast<double>(q[row + static_cast<std::size_t>(e)]) * static_cast<double>(key[e]);
                        sum += product;
                        sizes += std::abs(product);
                    }
                    sum *= static_cast<double>(shape.scale);
                    reach = std::max(reach, sizes * std::abs(static_cast<double>(shape.scale)));
                    if (shape.softcap != 0) sum = static_cast<double>(shape.softcap) * std::tanh(sum / static_cast<double>(shape.softcap));
                    s.push_back(sum);
                    top = std::max(top, sum);
                }
                for (double& x : s) total += x = std::exp(x - top);
                // f32 sums of d products, and the rounding of one probability
                const double score_error = 0x1p-24 * reach * (4 + std::sqrt(static_cast<double>(d))) + 1e-6;
                for (int e = 0; e < d; ++e) {
                    double expected = 0, size = 0, largest = 0;
                    for (int j = begin; j <= position; ++j) {
                        const double x = static_cast<double>(v[index(slot, j, h / group) + static_cast<std::size_t>(e)]);
                        expected += s[static_cast<std::size_t>(j - begin)] / total * x;
                        size += s[static_cast<std::size_t>(j - begin)] / total * std::abs(x);
                        largest = std::max(largest, std::abs(x));
                    }
                    const double tiny = type == DType::f16 ? 0x1p-25 * static_cast<double>(s.size()) * largest : 0;
                    const double bound = u * (size + std::abs(expected)) + 2 * score_error * size + tiny + 1e-30;
                    const float got = element(bytes, row + static_cast<std::size_t>(e));
                    ASSERT_FALSE(std::isnan(got)) << what << ": NaN at row " << r << " head " << h << " dim " << e;
                    const double error = std::abs(static_cast<double>(got) - expected);
                    worst = std::max(worst, error / bound);
                    ASSERT_LE(error, bound) << what << ": row " << r << " position " << position << " head " << h
                                            << " dim " << e << ": got " << got << ", expected " << expected;
                }
            }
        if (std::getenv("FORGE_SHOW") != nullptr) std::printf("%-70s %.3f of the bound\n", what.c_str(), worst);
    }
};

std::string label(const Shape& shape, DType type, Isa isa, const char* kernel) {
    std::ostringstream text;
    text << kernel << " " << name_of(isa) << " " << name_of(type) << " " << shape;
    return text.str();
}

TEST(KvCacheTest, ReadsBackWhatWasWritten) {
    for (const DType type : types())
        for (const int d : {2, 6, 64, 72}) {
            const int capacity = 48, slots = 2, heads = 3;
            Array keys(type, kv_cache_bytes(capacity, slots, heads, d, type) / size_of(type));
            Array values(type, kv_cache_bytes(capacity, slots, heads, d, type) / size_of(type));
            const KvCache cache{keys.data(), values.data(), capacity, slots, heads, d, type};
            const std::vector<float> all = normal(static_cast<std::size_t>(capacity * slots * heads * d * 2), type, 3);
            for (const bool write : {true, false}) {
                std::size_t at = 0;
                for (int slot = 0; slot < slots; ++slot)
                    for (int head = 0; head < heads; ++head)
                        for (int position = 0; position < capacity; ++position)
                            for (const bool is_value : {false, true}) {
                                Array one(type, static_cast<std::size_t>(d));
                                for (int e = 0; e < d && write; ++e) one.set(static_cast<std::size_t>(e), all[at + static_cast<std::size_t>(e)]);
                                if (write) kv_write(cache, is_value, slot, head, position, one.data());
                                else kv_read(cache, is_value, slot, head, position, one.data());
                                for (int e = 0; e < d; ++e)
                                    ASSERT_EQ(one.get(static_cast<std::size_t>(e)), all[at + static_cast<std::size_t>(e)]);
                                at += static_cast<std::size_t>(d);
                            }
            }
        }
}

TEST(AttentionTest, DecodeMatchesDoubleAtEveryBorder) {
    const std::vector<int> positions = {0, 1, 2, 14, 15, 16, 17, 31, 254, 255, 256, 257, 511, 512, 1000};
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const Shape& shape : {Shape{4, 2, 64}, Shape{3, 1, 8}})
                for (const int position : positions) {
                    if (HasFatalFailure()) return;
                    const Problem problem(shape, type, Rows().add(0, position, 1), 1008);
                    problem.compare(problem.decode(isa), label(shape, type, isa, "decode") + " position " + std::to_string(position));
                }
}

TEST(AttentionTest, PrefillMatchesDoubleAtEveryBorder) {
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const Shape& shape : {Shape{4, 2, 64}, Shape{3, 1, 8}})
                for (const auto& [first, count] : std::vector<std::pair<int, int>>{
                         {0, 9}, {0, 17}, {1, 16}, {15, 18}, {16, 33}, {240, 17}, {255, 3}, {256, 10}, {500, 60}}) {
                    if (HasFatalFailure()) return;
                    const Problem problem(shape, type, Rows().add(0, first, count), 576);
                    problem.compare(problem.prefill(isa), label(shape, type, isa, "prefill") + " from " + std::to_string(first));
                }
}

// Head sizes and groups that fill no vector or tile.
TEST(AttentionTest, AnyShape) {
    std::vector<Shape> shapes = {{1, 1, 2},    {9, 3, 64},  {6, 2, 80},  {5, 1, 96}, {7, 1, 72},
                                 {8, 8, 16},   {2, 1, 256}, {16, 1, 34}, {4, 4, 128}, {1, 1, 512}};
    if (long_tests())
        for (int d = 2; d <= 300; d += 6) shapes.push_back({1 + d % 7, 1, d});
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const Shape& shape : shapes) {
                if (HasFatalFailure()) return;
                const Problem one(shape, type, Rows().add(0, 275, 2), 288);
                one.compare(one.decode(isa), label(shape, type, isa, "decode"));
                const Problem many(shape, type, Rows().add(0, 250, 19), 288);
                many.compare(many.prefill(isa), label(shape, type, isa, "prefill"));
            }
}

TEST(AttentionTest, WindowsScalesAndSoftcaps) {
    std::vector<Shape> shapes;
    for (const int window : {1, 5, 16, 100, 300}) shapes.push_back({4, 2, 32, 0, 0, window});
    for (const float cap : {1.0f, 50.0f}) shapes.push_back({4, 2, 32, 0, cap, 0, 4});
    for (const float scale : {1.0f, -0.5f, 1e-6f}) shapes.push_back({4, 2, 32, scale});
    shapes.push_back({4, 2, 32, 0, 30, 20, 4});
    shapes.push_back({4, 2, 64, 0, 0, 0, 30});  // nearly one key wins
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const Shape& shape : shapes)
                for (const int position : {0, 3, 17, 270, 523}) {
                    if (HasFatalFailure()) return;
                    const Problem one(shape, type, Rows().add(0, position, 3), 544);
                    one.compare(one.decode(isa), label(shape, type, isa, "decode") + " position " + std::to_string(position));
                    const Problem many(shape, type, Rows().add(0, position, 15), 544);
                    many.compare(many.prefill(isa), label(shape, type, isa, "prefill") + " position " + std::to_string(position));
                }
}

TEST(AttentionTest, RowsOfSeveralSlots) {
    const Rows few = Rows().add(2, 300, 1).add(0, 0, 1).add(1, 254, 4).add(3, 15, 2);
    const Rows many = Rows().add(1, 40, 1).add(3, 0, 30).add(0, 255, 20).add(2, 3, 1).add(4, 16, 100);
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const int window : {0, 33}) {
                if (HasFatalFailure()) return;
                const Shape shape{6, 2, 48, 0, 0, window};
                const Problem one(shape, type, few, 320, 4);
                one.compare(one.decode(isa), label(shape, type, isa, "decode"));
                const Problem all(shape, type, many, 320, 5);
                all.compare(all.prefill(isa), label(shape, type, isa, "prefill"));
            }
}

// A row's bits depend on nothing but the row: not on M, on its neighbours, or on how items are split.
TEST(AttentionTest, DecodeBitsDoNotDependOnOtherRows) {
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const Shape& shape : {Shape{6, 2, 64}, Shape{7, 1, 32, 0, 0, 77}, Shape{16, 1, 24}}) {
                const Problem all(shape, type, Rows().add(1, 510, 4).add(0, 30, 3).add(2, 0, 1), 528, 3);
                const std::vector<unsigned char> together = all.decode(isa);
                EXPECT_EQ(together, all.decode(isa, Split::backwards));
                EXPECT_EQ(together, all.decode(isa, Split::random));
                const std::size_t width = static_cast<std::size_t>(shape.n_heads * shape.head_dim);
                for (std::size_t r = 0; r < 8; ++r) {
                    Problem alone(shape, type, Rows().add(all.rows.slots[r], all.rows.positions[r], 1), 528, 3);
                    std::copy_n(all.q.begin() + static_cast<std::ptrdiff_t>(r * width), width, alone.q.begin());
                    const std::size_t bytes = width * size_of(type);
                    EXPECT_EQ(std::vector<unsigned char>(together.begin() + static_cast<std::ptrdiff_t>(r * bytes),
                                                         together.begin() + static_cast<std::ptrdiff_t>((r + 1) * bytes)),
                              alone.decode(isa))
                        << label(shape, type, isa, "decode") << " row " << r;
                }
            }
}

TEST(AttentionTest, PrefillBitsDoNotDependOnSplitOrChunk) {
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const Shape& shape : {Shape{6, 2, 64}, Shape{7, 1, 32, 0, 0, 77}}) {
                const Problem all(shape, type, Rows().add(0, 200, 90), 304);
                const std::vector<unsigned char> together = all.prefill(isa);
                EXPECT_EQ(together, all.prefill(isa, Split::backwards));
                EXPECT_EQ(together, all.prefill(isa, Split::random));
                // The same rows in chunks of 29.
                const std::size_t width = static_cast<std::size_t>(shape.n_heads * shape.head_dim);
                for (int r = 0; r < 90; r += 29) {
                    const int n = std::min(29, 90 - r);
                    Problem chunk(shape, type, Rows().add(0, 200 + r, n), 304);
                    std::copy_n(all.q.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(r) * width),
                                static_cast<std::size_t>(n) * width, chunk.q.begin());
                    const std::size_t bytes = width * size_of(type);
                    EXPECT_EQ(std::vector<unsigned char>(
                                  together.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(r) * bytes),
                                  together.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(r + n) * bytes)),
                              chunk.prefill(isa))
                        << label(shape, type, isa, "prefill") << " chunk at " << r;
                }
            }
}

// Decode and prefill sum in different orders; both must stay within the same bound.
TEST(AttentionTest, PrefillAgreesWithTokenByToken) {
    const Shape shape{8, 2, 64};
    for (const Isa isa : isas())
        for (const DType type : types()) {
            const Problem all(shape, type, Rows().add(0, 0, 280), 288);
            const std::vector<unsigned char> together = all.prefill(isa);
            double largest = 0, worst = 0;
            const std::size_t width = static_cast<std::size_t>(shape.n_heads * shape.head_dim);
            for (std::size_t r = 0; r < 280; r += 8) {
                Problem some(shape, type, Rows().add(0, static_cast<int>(r), 8), 288);
                std::copy_n(all.q.begin() + static_cast<std::ptrdiff_t>(r * width), 8 * width, some.q.begin());
                const std::vector<unsigned char> bytes = some.decode(isa);
                for (std::size_t i = 0; i < 8 * width; ++i) {
                    const double a = static_cast<double>(all.element(together, r * width + i)), b = static_cast<double>(some.element(bytes, i));
                    largest = std::max(largest, std::abs(a));
                    worst = std::max(worst, std::abs(a - b));
                }
            }
            EXPECT_LE(worst, largest * (type == DType::f32 ? 2e-6 : 3 * unit_roundoff(type))) << label(shape, type, isa, "both");
        }
}

TEST(AttentionTest, RefusesWhatItCannotDo) {
    Array keys(DType::bf16, 16 * 64), out(DType::bf16, 64);
    AttentionParams p;
    p.n_heads = 3;
    p.n_kv_heads = 2;
    p.head_dim = 64;
    p.cache = {keys.data(), keys.data(), 16, 1, 2, 64, DType::bf16};
    EXPECT_ANY_THROW(attention_decode_kernel(p, Isa::plain));
    p.n_heads = 4;
    EXPECT_NO_THROW(attention_decode_kernel(p, Isa::plain));
    p.type = DType::f64;
    EXPECT_ANY_THROW(attention_prefill_kernel(p, Isa::plain));
    p.type = DType::bf16;
    p.head_dim = p.cache.head_dim = 63;
    EXPECT_ANY_THROW(attention_prefill_kernel(p, Isa::plain));
    p.head_dim = p.cache.head_dim = 514;
    EXPECT_ANY_THROW(attention_prefill_kernel(p, Isa::plain));
}

}  // namespace
}  // namespace forge::test
