#include "layer_read_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backends/backend.h"
#include "reference_file.h"
#include "runtime/engine.h"

namespace forge::test {
namespace {

Weight weight(const std::vector<std::byte>& bytes, std::int64_t rows, std::size_t stride) {
    Weight w;
    w.rows = rows;
    w.cols = static_cast<std::int64_t>(stride);
    w.codes = {bytes.data(), stride};
    return w;
}

Launch launch(const char* kernel, int layer, std::vector<std::pair<const char*, int>> weights) {
    Launch l;
    l.kernel = kernel;
    l.layer = layer;
    for (const auto& [name, id] : weights) l.operands.push_back({name, {Space::weight, id, 0, 0}, Access::read});
    return l;
}

TEST(LayerReadAhead, KnowsWhatComesNext) {
    const std::vector<std::byte> bytes(10000);
    const std::vector<Weight> weights{weight(bytes, 10, 100), weight(bytes, 5, 30), weight(bytes, 7, 50), weight(bytes, 9, 60), weight(bytes, 2, 10)};
    Program program;
    program.launches = {launch("embed", -1, {{"table", 0}}), launch("matvec", 0, {{"weight", 1}, {"norm_weight", 4}}),
                        launch("matvec", 1, {{"weight", 2}, {"weight2", 1}}), launch("expert_matvec", 1, {{"weight", 3}}), launch("matvec", -1, {{"weight", 0}})};
    LayerReadAhead ahead(program, weights);
    const auto sizes = [&](int layer) {
        std::vector<std::size_t> out;
        for (const auto& piece : ahead.after(layer)) out.push_back(piece.size());
        return out;
    };
    EXPECT_EQ(sizes(-1), std::vector<std::size_t>{150});
    EXPECT_EQ(sizes(0), (std::vector<std::size_t>{350, 150}));   // no experts
    EXPECT_EQ(sizes(1), std::vector<std::size_t>{1000});         // the head
    for (int layer = -1; layer < 2; ++layer) ahead.at_layer(layer);   // asking is harmless, also of memory that is no file
}

TEST(LayerReadAhead, StepsTellTheirLayersInOrder) {
    // What the executable tells is what print_program shows: layers rise once, with what is in none around them.
    auto engine = Engine::load(tiny_model("llama-gqa-tied").model.string(), {.device = "cpu", .threads = 2, .ctx = 32});
    std::vector<int> layers;
    engine->on_layer([&](int layer) { layers.push_back(layer); });
    const StepInput row{3, 0, 0, true};
    engine->step({&row, 1});
    ASSERT_GE(layers.size(), 3u);
    EXPECT_EQ(layers.front(), -1);
    EXPECT_EQ(layers.back(), -1);
    for (std::size_t i = 2; i + 1 < layers.size(); ++i) EXPECT_EQ(layers[i], layers[i - 1] + 1);
}

}  // namespace
}  // namespace forge::test
