// GGUF files bound: every plane row decodes to what the file's block row does.
#include <cstdlib>
#include <filesystem>

#include "model/bind.h"
#include "resolve.h"
#include "read_spec.h"
#include "support.h"

namespace forge {
namespace {

namespace fs = std::filesystem;

// The tiny models, and with FORGE_TEST_MODELS=FOLDER the GGUF files in it.
std::vector<std::string> gguf_files() {
    std::vector<std::string> paths;
    for (const auto& entry : fs::directory_iterator(FORGE_TEST_DATA "/models"))
        if (fs::exists(entry.path() / "model.gguf")) paths.push_back((entry.path() / "model.gguf").string());
    if (const char* folder = std::getenv("FORGE_TEST_MODELS"))
        for (const auto& entry : fs::directory_iterator(folder))
            if (entry.path().extension() == ".gguf") paths.push_back(entry.path().string());
    return paths;
}

TEST(GgufPlanes, RowsDecodeToTheFilesValues) {
    ThreadPool pool(2);
    std::size_t rows_compared = 0;
    for (const std::string& path : gguf_files()) {
        SCOPED_TRACE(path);
        const auto file = open_gguf(path);
        const auto model = bind_model(*file, pool);
        Draft draft = read_draft(*file);
        const Resolution resolution = resolve_tensors(draft);
        ASSERT_EQ(resolution.uses.size(), model->weights.size());
        std::vector<float> got, expected;
        for (std::size_t i = 0; i < resolution.uses.size(); ++i) {
            const TensorUse& use = resolution.uses[i];
            if (use.as_f32 || !use.tensor->is_block) continue;
            const auto& map = use.row_map;
            const std::size_t row_bytes = use.tensor->data.size() / static_cast<std::size_t>(use.tensor->rows());
            got.resize(static_cast<std::size_t>(use.cols));
            expected.resize(static_cast<std::size_t>(use.cols));
            for (std::int64_t r = 0; r < use.rows; ++r) {
                const std::int64_t source = use.first_row + (map.empty() ? r : map[static_cast<std::size_t>(r)]);
                decode_gguf_row(use.tensor->block, use.tensor->data.data() + static_cast<std::size_t>(source) * row_bytes, use.cols, expected.data());
                for (float& value : expected) value *= use.global_scale;
                decode_row(model->weights[i], r, got.data());
                ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
                    << use.tensor->describe() << " row " << r;
                ++rows_compared;
            }
        }
    }
    EXPECT_GT(rows_compared, 1000u);
}

TEST(GgufPlanes, InterleavedRowsAreAPermutationWithinHeads) {
    // Two heads of six rows, four of which rotate: 0 2 1 3 within each, the rest in place.
    EXPECT_THAT(interleaved_rows(12, 6, 4), testing::ElementsAre(0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11));
    EXPECT_THAT(interleaved_rows(8, 8, 8), testing::ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
}

}  // namespace
}  // namespace forge
