// /slots: what each slot holds, and saving, restoring and erasing it.
#include <chrono>
#include <filesystem>

#include "app.h"
#include "base/error.h"

namespace forge::server {
namespace {

// Of the folder alone: whoever may ask must not reach other files.
std::string file_in(const std::string& folder, Fields& f) {
    const std::string name = f.text("filename").value_or("");
    const bool good = !name.empty() && name.size() <= 200 && name[0] != '.' &&
                      std::all_of(name.begin(), name.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_'; });
    if (!good) bad_field("filename", "filename should be a name of letters, digits, \".\", \"-\" and \"_\" that does not begin with a dot, found {}", describe(name));
    return (std::filesystem::path(folder) / name).string();
}

std::string query_value(std::string_view query, std::string_view name) {
    while (!query.empty()) {
        const std::string_view pair = query.substr(0, query.find('&'));
        query.remove_prefix(std::min(query.size(), pair.size() + 1));
        if (pair.starts_with(name) && pair.size() > name.size() && pair[name.size()] == '=')
            return http::percent_decoded(pair.substr(name.size() + 1), true);
    }
    return {};
}

// The slot's number in /slots/N.
int number_of(std::string_view path) {
    const std::string_view digits = path.substr(std::string_view("/slots/").size());
    int number = 0;
    for (const char c : digits) {
        if (c < '0' || c > '9' || number > 9999) return -1;
        number = 10 * number + (c - '0');
    }
    return digits.empty() ? -1 : number;
}

void list(const Call& call) {
    const auto served = call.app.models.get(query_value(call.request.query, "model"));
    Json all = Json::array();
    for (const Batcher::SlotInfo& slot : served->service.batcher().slots())
        all.push_back({{"id", slot.index}, {"n_ctx", served->service.model().engine()->options().ctx}, {"is_processing", slot.busy}, {"n_past", slot.tokens}});
    call.send(all);
}

void act(const Call& call) {
    const int slot = number_of(call.request.path);
    if (slot < 0) throw ApiError(404, "id_slot", "the path of a slot ends with its number, as in /slots/0", "not_found");
    const std::string action = query_value(call.request.query, "action");
    if (action != "save" && action != "restore" && action != "erase")
        bad_field("action", "action should be save, restore or erase, found \"{}\"", action.substr(0, 40));
    const Json body = call.request.body.empty() ? Json::object() : call.body();
    Fields f(body);
    const std::string model = f.text("model").value_or(query_value(call.request.query, "model"));
    const std::string& folder = call.app.options.slot_folder;
    std::string path;
    if (action != "erase") {
        if (folder.empty()) throw ApiError(501, "", "slots are saved and restored only when the server was started with --slot-save-path FOLDER");
        path = file_in(folder, f);
    }
    f.finish();
    Batcher& batcher = call.app.models.get(model)->service.batcher();
    const auto start = std::chrono::steady_clock::now();
    Json answer = {{"id_slot", slot}};
    try {
        if (action == "erase") {
            answer["n_erased"] = batcher.erase_slot(slot);
        } else {
            const bool save = action == "save";
            const std::size_t tokens = save ? batcher.save_slot(slot, path) : batcher.restore_slot(slot, path);
            const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
            answer["filename"] = std::filesystem::path(path).filename().string();
            answer[save ? "n_saved" : "n_restored"] = tokens;
            answer[save ? "n_written" : "n_read"] = std::filesystem::file_size(path);
            answer["timings"] = {{save ? "save_ms" : "restore_ms", ms}};
        }
    } catch (const Error& error) {
        if (error.kind() == ErrorKind::not_found && !path.empty() && !std::filesystem::exists(path))
            throw ApiError(404, "filename", fmt::format("there is no saved slot of that name"), "not_found");
        throw;
    }
    call.send(answer);
}

}  // namespace

bool route_slots(const Call& call) {
    if (call.is("GET", "/slots")) return list(call), true;
    if (!call.request.path.starts_with("/slots/")) return false;
    if (!call.is("POST", call.request.path)) return false;
    act(call);
    return true;
}

}  // namespace forge::server
