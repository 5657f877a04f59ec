#include "models.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <iterator>

#include "base/log.h"
#include "fields.h"

namespace forge::server {

using Clock = std::chrono::steady_clock;

namespace {

ApiError stopping() { return {503, "", "the server is stopping"}; }

}  // namespace

std::string model_name(const std::string& path) {
    std::filesystem::path p = path;
    if (p.filename().empty()) p = p.parent_path();
    return p.extension() == ".gguf" || p.extension() == ".forge" ? p.stem().string() : p.filename().string();
}

Models::Models(const ServeOptions& options) : options_(options), names_(options.models) {
    for (std::size_t i = 0; i < names_.size(); ++i) {
        places_.push_back(std::make_unique<Place>());
        model_path(names_[i].path);  // refuses what does not exist before anybody asks for it
    }
    cleaner_ = std::thread([this] { clean(); });
}

Models::~Models() { close(); }

void Models::close() {
    std::vector<Loaded> waiting;
    {
        std::lock_guard lock(mutex_);
        if (closing_) return;
        closing_ = true;
        for (const auto& place : places_) waiting.insert(waiting.end(), std::make_move_iterator(place->waiting.begin()), std::make_move_iterator(place->waiting.end()));
        for (const auto& place : places_) place->waiting.clear();
    }
    wake_.notify_all();
    for (const Loaded& action : waiting) action(std::make_exception_ptr(stopping()));   // the loading may take long
    cleaner_.join();
    std::vector<std::shared_ptr<Served>> all;
    {
        std::lock_guard lock(mutex_);
        for (auto& place : places_)
            if (place->served) all.push_back(std::move(place->served));
        for (auto& served : retired_) all.push_back(std::move(served));
        retired_.clear();
    }
    for (const auto& served : all) served->service.close();
    // Whoever still holds one lets go of it soon, but must not be its own stepping thread.
    for (auto& served : all)
        for (int i = 0; i < 500 && served.use_count() > 1; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

std::size_t Models::index(const std::string& name) const {
    if (name.empty()) return 0;
    for (std::size_t i = 0; i < names_.size(); ++i) {
        const ServedModelName& n = names_[i];
        // Ollama's clients add ":latest" to a name without a tag.
        const auto is = [&](const std::string& known) { return name == known || name == known + ":latest"; };
        if (is(n.name) || std::any_of(n.aliases.begin(), n.aliases.end(), is)) return i;
    }
    std::string list;
    for (const ServedModelName& n : names_) list += (list.empty() ? "" : ", ") + n.name;
    throw ApiError(404, "model", fmt::format("there is no model {} here; there {} {}", name.substr(0, 200), names_.size() == 1 ? "is" : "are", list), "model_not_found");
}

const ServedModelName& Models::resolve(const std::string& name) const { return names_[index(name)]; }

bool Models::busy(const Served& served) {
    const Batcher::Load load = served.service.load();
    return load.running + load.waiting > 0;
}

std::shared_ptr<Served> Models::get(const std::string& name, double* load_seconds) {
    const std::size_t i = index(name);
    Place& place = *places_[i];
    {
        std::lock_guard lock(mutex_);
        if (closing_) throw stopping();
        place.last_use = Clock::now();
        if (place.served) return place.served;
        if (place.loading) throw StillLoading{names_[i].name};
        place.loading = true;
    }
    std::shared_ptr<Served> served;
    std::exception_ptr failed;
    try {
        served = load(i);
    } catch (...) {
        failed = std::current_exception();
    }
    std::vector<Loaded> waiting;
    {
        std::lock_guard lock(mutex_);
        place.loading = false;
        waiting.swap(place.waiting);
        if (!failed && closing_) failed = std::make_exception_ptr(stopping());
        if (!failed) place.served = served;
        place.last_use = Clock::now();
    }
    for (const Loaded& action : waiting) action(failed);
    if (failed) std::rethrow_exception(failed);
    if (load_seconds) *load_seconds = served->load_seconds;
    return served;
}

std::shared_ptr<Served> Models::load(std::size_t i) {
    const auto start = Clock::now();
    std::shared_ptr<const TextModel> model;
    for (bool again = true; !model;) {
        try {
            model = TextModel::load(names_[i].path, options_.load);
        } catch (const Error& error) {
            if (error.kind() != ErrorKind::out_of_memory) throw;
            if (again && unload_idle_but(i)) {
                again = false;
                continue;
            }
            ApiError full(503, "model", error.what());
            full.retry_after = 30;
            throw full;
        }
    }
    auto served = std::make_shared<Served>(names_[i].name, std::move(model), options_.max_queue, options_.prefix_bytes);
    served->load_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    log_info("{} was loaded in {:.1f} s", names_[i].name, served->load_seconds);
    return served;
}

std::shared_ptr<Served> Models::get_and_wait(const std::string& name) {
    for (;;) {
        try {
            return get(name);
        } catch (const StillLoading&) {
            const auto loaded = std::make_shared<std::promise<void>>();
            when_loaded(name, [loaded](std::exception_ptr failed) {
                if (failed) loaded->set_exception(failed);
                else loaded->set_value();
            }, true);
            loaded->get_future().get();
        }
    }
}

void Models::when_loaded(const std::string& name, Loaded action, bool urgent) {
    {
        std::lock_guard lock(mutex_);
        if (closing_) throw stopping();
        Place& place = *places_[index(name)];
        if (place.loading) {
            const auto most = static_cast<std::size_t>(std::max(0, options_.max_queue) + std::max(1, options_.load.parallel));
            if (place.waiting.size() >= most && !urgent) throw QueueFull(fmt::format("{} is being loaded, and {} requests wait for it; try again later", name, place.waiting.size()));
            place.waiting.push_back(std::move(action));
            return;
        }
    }
    action(nullptr);
}

std::shared_ptr<Served> Models::loaded(const std::string& name) const {
    std::lock_guard lock(mutex_);
    return places_[index(name)]->served;
}

std::vector<std::shared_ptr<Served>> Models::all_loaded() const {
    std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Served>> all;
    for (const auto& place : places_)
        if (place->served) all.push_back(place->served);
    return all;
}

std::optional<std::int64_t> Models::seconds_left(const std::string& name) const {
    std::lock_guard lock(mutex_);
    const Place& place = *places_[index(name)];
    if (!place.served) return std::nullopt;
    const std::int64_t own = place.served->keep_seconds, keep = own >= 0 ? own : options_.idle_unload.count();
    if (keep < 0 || keep == INT32_MAX) return std::nullopt;
    const auto used = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - place.last_use).count();
    return busy(*place.served) ? keep : std::max<std::int64_t>(0, keep - used);
}

// The cleaner destroys it: a request that holds it as the last one could be in its own stepping thread.
void Models::retire(Place& place) {
    if (place.served) retired_.push_back(std::move(place.served));
    place.served = nullptr;
}

void Models::unload(const std::string& name) {
    {
        std::lock_guard lock(mutex_);
        retire(*places_[index(name)]);
    }
    wake_.notify_all();
}

// Makes room; waits until the memory is free. False when there was nothing to unload.
bool Models::unload_idle_but(std::size_t kept) {
    {
        std::lock_guard lock(mutex_);
        for (std::size_t i = 0; i < places_.size(); ++i)
            if (i != kept && places_[i]->served && !busy(*places_[i]->served)) retire(*places_[i]);
        if (retired_.empty()) return false;
    }
    for (int i = 0; i < 100; ++i) {
        wake_.notify_all();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        std::lock_guard lock(mutex_);
        if (retired_.empty()) break;
    }
    return true;
}

void Models::clean() {
    std::unique_lock lock(mutex_);
    while (!closing_) {
        wake_.wait_for(lock, std::chrono::milliseconds(retired_.empty() ? 1000 : 50));
        const auto now = Clock::now();
        for (const auto& place : places_) {
            if (!place->served) continue;
            if (busy(*place->served)) place->last_use = now;
            const std::int64_t own = place->served->keep_seconds, keep = own >= 0 ? own : options_.idle_unload.count();
            if (keep >= 0 && now - place->last_use > std::chrono::seconds(keep)) {
                log_info("{} is unloaded: nobody used it for {} s", place->served->name, keep);
                retire(*place);
            }
        }
        std::vector<std::shared_ptr<Served>> dead;
        for (auto it = retired_.begin(); it != retired_.end();) {
            if (it->use_count() > 1) { ++it; continue; }
            dead.push_back(std::move(*it));
            it = retired_.erase(it);
        }
        lock.unlock();
        dead.clear();
        lock.lock();
    }
}

}  // namespace forge::server
