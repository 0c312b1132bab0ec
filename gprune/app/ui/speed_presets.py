"""The presets of the speed measurement, as the forms that offer them call them."""

SPEEDS = {
    "none": "not measured",
    "auto": "auto: gpu where there is one, else cpu",
    "cpu": "cpu: batch 1, prompt 128, 64 new tokens",
    "gpu": "gpu: the paper's setting, batch 8, prompt 2048, 512 new tokens",
}
"""presets of the speed measurement, in words"""
