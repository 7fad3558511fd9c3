"""All rules: importing this module registers them."""

from . import (
    attention,
    contracted,
    factories,
    indexing,
    joins,
    partials,
    pointwise,
    products,
    reductions,
    views,
    windows,
)

__all__ = [
    "attention",
    "contracted",
    "factories",
    "indexing",
    "joins",
    "partials",
    "pointwise",
    "products",
    "reductions",
    "views",
    "windows",
]
