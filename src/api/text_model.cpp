#include "api/text_model.h"

#include <algorithm>
#include <future>
#include <set>

namespace forge {

std::shared_ptr<const TextModel> TextModel::load(const std::string& path, const LoadOptions& options) {
    std::shared_ptr<TextModel> model(new TextModel);
    const std::string resolved = model_path(path);
    const std::shared_ptr<ModelFile> file = open_model_file(resolved);
    const bool inside = file->packed || file->format == ModelFormat::gguf;  // the text side is in the model's file
    // Beside the engine: both read the disk, and a large vocabulary takes as long as mapping the weights.
    auto text = std::async(std::launch::async, [&] { return inside ? ModelText::load(*file) : ModelText::load(resolved); });
    model->engine_ = Engine::load(file, options);
    model->text_ = text.get();
    const ModelSpec& spec = model->engine_->spec();
    // The tokenizer may know fewer tokens (padding rows) and also a few more (Gemma's image token).
    model->id_limit_ = std::min(model->tokenizer()->size(), static_cast<std::int32_t>(spec.vocab));
    std::set<std::int32_t> stops(spec.stop_ids.begin(), spec.stop_ids.end());
    const auto& ends = model->tokenizer()->end_of_generation();
    stops.insert(ends.begin(), ends.end());
    model->stop_ids_.assign(stops.begin(), stops.end());
    // Control tokens that end nothing begin something: a message, mostly.
    std::vector<std::int32_t> starts;
    for (std::int32_t id = 0; id < model->id_limit_; ++id)
        if (model->tokenizer()->kind(id) == TokenKind::control && !stops.contains(id) && model->tokenizer()->bos() != id) starts.push_back(id);
    model->engine_->set_message_starts(starts);
    return model;
}

const std::shared_ptr<const Vocabulary>& TextModel::vocabulary() const {
    std::call_once(vocabulary_once_, [&] { vocabulary_ = std::make_shared<Vocabulary>(tokenizer(), id_limit_, stop_ids_); });
    return vocabulary_;
}

}  // namespace forge
