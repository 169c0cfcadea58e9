"""Requests and answers about users: their tokens, and links to the page."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from meander.api.models import Input, Name

RoleName = Literal["device", "reader", "operator", "admin"]


class LoginCode(Input):
    code: str = Field(min_length=1, max_length=100, description="The part of the link behind `#code=`.")


class LoginAnswer(BaseModel):
    token: str = Field(description="Good for twelve hours, or until the coordinator ends.")
    name: str
    role: RoleName


class UserTokenRequest(Input):
    name: Name
    role: RoleName
    renew: bool = Field(False, description="Whether to replace a token that the user has.")


class UserTokenCreated(BaseModel):
    name: str
    role: RoleName
    token: str = Field(description="Shown once.")


class UserToken(BaseModel):
    name: str
    role: RoleName
    made_ms: int


class PageLink(BaseModel):
    link: str = Field(description="Behind the coordinator's address; good once, and for an hour.")
