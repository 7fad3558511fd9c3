"""All rules: importing this module registers them."""

from . import (
    attention,
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
