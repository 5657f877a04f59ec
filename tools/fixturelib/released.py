"""Names as released checkpoints spell them where today's save_pretrained writes others."""


def gemma3_released_names(state):
    """The multimodal wrapper's names: language_model.model.*, vision_tower.*, multi_modal_projector.*."""
    renamed = {}
    for name, value in state.items():
        if name.startswith("model.language_model."):
            name = "language_model.model." + name.removeprefix("model.language_model.")
        renamed[name.removeprefix("model.") if name.startswith("model.") else name] = value
    return renamed
